#!/usr/bin/env python3
"""Downloads the files of a model from the Hugging Face hub and checks them; called by get_model.sh.

usage: download_model.py MODEL DIR PATTERN...

Exit code: 0 all files are there, 1 they are not, 3 the hub cannot be reached. What is wrong is one line.
"""
import errno
import os
import pathlib
import shutil
import sys
import warnings

os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_VERBOSITY"] = "error"
warnings.simplefilter("ignore")

import check_download  # noqa: E402
import huggingface_hub as hub  # noqa: E402
from huggingface_hub import errors  # noqa: E402
from huggingface_hub.utils import disable_progress_bars, enable_progress_bars  # noqa: E402

ENDPOINT = hub.constants.ENDPOINT
UNREACHABLE = 3


class Problem(Exception):
    def __init__(self, text, hint, code=1):
        super().__init__(f"error: {text}\nhint: {hint}")
        self.code = code


def no_space(model, root, free, least=""):
    return Problem(f"the disk is full: {root} has {free / 1e9:.3f} GB left{least}",
                   f"make room, or name a folder on another disk: tools/get_model.sh {model} DIR")


def explain(error, model, root):
    """The Problem that an exception of the client means; the exceptions that led to it say it best."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    for cause in causes:
        if isinstance(cause, errors.GatedRepoError):
            return Problem(f"{model} is only given to users who accepted its terms and are logged in",
                           f"accept them on {ENDPOINT}/{model}, make a token on {ENDPOINT}/settings/tokens, "
                           "and start again with HF_TOKEN=TOKEN")
        if isinstance(cause, errors.RepositoryNotFoundError):
            return Problem(f"{ENDPOINT} has no model {model}",
                           f"look for its name on {ENDPOINT}/models; a private one needs HF_TOKEN=TOKEN of a user "
                           "who may see it")
        if isinstance(cause, errors.OfflineModeIsEnabled):
            return Problem("HF_HUB_OFFLINE forbids a download", "unset HF_HUB_OFFLINE")
        if isinstance(cause, errors.HfHubHTTPError) and cause.response is not None:
            status = cause.response.status_code
            hints = {401: "the token in HF_TOKEN or of `hf auth login` may be wrong",
                     403: "the token in HF_TOKEN or of `hf auth login` may not open this model",
                     404: "HF_ENDPOINT may not be the address of a hub"}
            return Problem(f"{ENDPOINT} answers with HTTP status {status} when asked for {model}",
                           hints.get(status, "start again later; HF_ENDPOINT=URL takes a mirror"),
                           1 if status in hints else UNREACHABLE)
        if any(kind.__name__ == "TransportError" for kind in type(cause).__mro__):
            return Problem(f"{ENDPOINT} cannot be reached: {first_line(cause)}",
                           "once there is a network, start again; HF_ENDPOINT=URL takes a mirror", UNREACHABLE)
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return no_space(model, root, free_space(root))
    return Problem(f"{model} cannot be downloaded: {first_line(error)}",
                   f"start again, and if that does not help look at {ENDPOINT}/{model}")


def first_line(error):
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def free_space(root):
    root = root.absolute()
    return shutil.disk_usage(next(p for p in (root, *root.parents) if p.exists())).free


def announce(model, root, patterns):
    """Prints what is to be downloaded; raises a Problem if it is no model or does not fit."""
    files = hub.snapshot_download(model, local_dir=root, allow_patterns=patterns, dry_run=True)
    if not any(file.filename.endswith(".safetensors") for file in files):
        raise Problem(f"{model} has no *.safetensors files, the only ones that Kuiper reads",
                      "GGUF files and the like are made from another model: take that one")
    size = sum(file.file_size or 0 for file in files)
    missing = sum(file.file_size or 0 for file in files if file.will_download)
    print(f"{model}: {len(files)} files, {size / 1e9:.3f} GB, of which {missing / 1e9:.3f} GB are to be downloaded "
          f"into {root}", file=sys.stderr, flush=True)
    partial = sum(p.stat().st_size for p in (root / ".cache").rglob("*.incomplete"))
    free = free_space(root)
    if missing - partial > free:
        raise no_space(model, root, free, f", and {(missing - partial) / 1e9:.3f} GB are needed")


def is_complete(model, root, patterns):
    """True if an earlier run brought all files, as the client's list of them says, and none is damaged."""
    try:
        hub.snapshot_download(model, local_dir=root, allow_patterns=patterns, local_files_only=True)
    except Exception:  # whatever the client raises
        return False
    return check_download.report(root) == 0


def download(model, root, patterns):
    if sys.stderr.isatty():
        enable_progress_bars()
    hub.snapshot_download(model, local_dir=root, allow_patterns=patterns)
    disable_progress_bars()


def main():
    model, root, patterns = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    disable_progress_bars()
    try:
        announce(model, root, patterns)
        download(model, root, patterns)
        if check_download.report(root) == 0:
            return 0
        print("downloading the damaged files again", file=sys.stderr)
        download(model, root, patterns)
        return check_download.report(root)
    except KeyboardInterrupt:
        print("\nerror: interrupted\nhint: the same command goes on from here", file=sys.stderr)
        return 130
    except Exception as error:  # whatever the client raises
        problem = error if isinstance(error, Problem) else explain(error, model, root)
        if problem.code == UNREACHABLE and root.is_dir() and is_complete(model, root, patterns):
            return 0
        print(problem, file=sys.stderr)
        return problem.code


if __name__ == "__main__":
    sys.exit(main())
