"""The manifests of docs/examples as their own tools read them, and a server that runs with what they say.

    python3 test/demo/manifests_test.py SERVER MODEL

Ends with 77 (skipped) where the package kubernetes-validate is not installed. Ray's own types check its
configuration where the package ray is; without it, what is known of them.
"""
import ast
import importlib.util
import os
import sys
import tempfile

from served import Server

try:
    import kubernetes_validate
    import yaml
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

VERSIONS = ("1.31", "1.37")


def kubernetes(path):
    """-> the manifest's objects by kind, which are valid."""
    with open(path, encoding="utf-8") as f:
        objects = list(yaml.safe_load_all(f))
    for version in VERSIONS:
        for thing in objects:
            kubernetes_validate.validate(thing, version, strict=True)
    wrong = yaml.safe_load(yaml.safe_dump(objects[1]))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["periodSecond"] = 3
    try:
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)
        raise AssertionError("a wrong field passed")
    except kubernetes_validate.ValidationError:
        print("ok: objects of Kubernetes", VERSIONS)
    return {thing["kind"]: thing for thing in objects}


def settings(objects):
    """The lines of server.conf."""
    return dict(map(str.strip, line.split("=", 1)) for line in objects["ConfigMap"]["data"]["server.conf"].splitlines())


def check_times(objects):
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    server = pod["containers"][0]
    wait = int(server["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > wait + float(settings(objects)["drain-timeout"])
    assert [server[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")] == \
        ["/health", "/health", "/ping"]
    print("ok: what ends has time to drain")


def serve(objects, program, model, scratch):
    """A server with the file of the manifest, but for the model and the port, answers the probes and the scraper."""
    lines = {**settings(objects), "host": "127.0.0.1"}
    lines.pop("model")
    path = os.path.join(scratch, "server.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write("".join(f"{name} = {value}\n" for name, value in lines.items()))
    pod = objects["Deployment"]["spec"]["template"]
    server = pod["spec"]["containers"][0]
    assert str(server["ports"][0]["containerPort"]) == pod["metadata"]["annotations"]["prometheus.io/port"]
    with Server(program, model, scratch, "--config", path) as running:
        for probe in ("readinessProbe", "livenessProbe"):
            running.get(server[probe]["httpGet"]["path"])
        assert "kuiper:num_requests_running" in running.get(pod["metadata"]["annotations"]["prometheus.io/path"])
    print("ok: a server of this configuration")


def ray(folder):
    with open(os.path.join(folder, "ray_serve.yaml"), encoding="utf-8") as f:
        config = yaml.safe_load(f)
    if importlib.util.find_spec("ray") is not None:
        from ray.serve.schema import ServeDeploySchema
        ServeDeploySchema.model_validate(config)
        print("ok: Ray's types take its configuration")
    application = config["applications"][0]
    deployment = application["deployments"][0]
    with open(os.path.join(folder, "ray_serve.py"), encoding="utf-8") as f:
        code = ast.parse(f.read())
    names = {node.name for node in code.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert set(application["import_path"].split(":")[1:]) | {deployment["name"]} <= names
    drain = float(application["args"]["arguments"][application["args"]["arguments"].index("--drain-timeout") + 1])
    assert deployment["graceful_shutdown_timeout_s"] > drain
    print("ok: the configuration names what the program has")


def main():
    program, model = sys.argv[1:]
    examples = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "examples")
    objects = kubernetes(os.path.join(examples, "kubernetes.yaml"))
    check_times(objects)
    ray(examples)
    with tempfile.TemporaryDirectory() as scratch:
        serve(objects, program, model, scratch)


if __name__ == "__main__":
    main()
