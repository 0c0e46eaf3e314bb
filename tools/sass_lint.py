#!/usr/bin/env python3
"""How the machine code of every CUDA kernel waits for memory, from the disassembly of its loops.

Reads what `tools/kernel_table.py --keep FOLDER` compiled and prints a line per kernel and
architecture. `in_flight` and `waits` have a number for each innermost loop with loads from global
memory, in the order of the code: the bytes a thread has under way when it first waits for one of
them (the most of any such wait), and how often in a turn it waits for loads it began after its last
wait, each a whole latency. `generic` are accesses whose memory is known only as they run, `fences`
are MEMBARs, `local` are spills and arrays on the stack, `awaits` are waits for earlier kernels, of
which every kernel has one from sm_90 on (kernel_order.cuh), `blocks` fit a multiprocessor by registers
and shared memory, `asked` is what the launch bounds say of them. Dynamic shared memory is that of the
shapes in docs/kernel_traffic.tsv. A loop is walked straight through, branches not taken, with the
scoreboards of the control words.

With --check FILE the result is compared with a table made before: fewer bytes in flight, more waits,
generic accesses, fences or local ones, or fewer blocks are errors, and so is less than FLOORS below.

Needs cuobjdump and nvdisasm of a CUDA toolkit (--cuobjdump says where the two are). Where it has none,
`pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm` puts them into nvidia/cu13/bin.

    python3 tools/kernel_table.py --keep build/machine_code > /dev/null
    python3 tools/sass_lint.py build/machine_code > docs/machine_code.tsv
    python3 tools/sass_lint.py build/machine_code --check docs/machine_code.tsv
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

import kernel_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = ["kernel", "sm", "in_flight", "waits", "generic", "fences", "local", "awaits", "blocks", "asked"]

# The largest in_flight of a kernel is at least so many bytes, whatever the table says.
FLOORS = [
    (r"SkinnyKernel<\w+, 1, 1, \d, true>", 9 * 16),  # decode: 8 loads of weights for the next turn, one of tokens
]

# Of a multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"):
# threads, blocks, bytes of shared memory. Registers are 65536, given to warps in units of 256; every
# block has 1 KB of shared memory for the system, and gets it in units of 128 bytes.
SM = {"87": (1536, 16, 164 << 10), "90": (2048, 32, 228 << 10)}
REGISTERS, REGISTER_UNIT, SHARED_UNIT, SYSTEM_SHARED = 65536, 256, 128, 1024

Instruction = collections.namedtuple("Instruction", "address name operands writes waits")
FUNCTION = re.compile(r"^\s*Function : (\S+)")
FIRST = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;\s+/\* 0x[0-9a-f]{16} \*/")
SECOND = re.compile(r"^\s+/\* (0x[0-9a-f]{16}) \*/")


def parse(listing):
    """`cuobjdump -sass` -> {mangled name: [Instruction]}. The upper half of an instruction has the
    scoreboard that it lets go when done (7: none) and the set of those it waits for."""
    functions, first = {}, None
    for line in listing.splitlines():
        if match := FUNCTION.match(line):
            code = functions.setdefault(match[1], [])
        elif match := FIRST.match(line):
            first = match
        elif first and (match := SECOND.match(line)):
            control = int(match[1], 16)
            code.append(Instruction(int(first[1], 16), first[2], first[3], control >> 46 & 7, control >> 52 & 63))
            first = None
    return functions


def width(name):
    """The bytes a thread moves, by the parts of the name: LDG.E.128.CONSTANT."""
    sizes = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
    return next((sizes[part] for part in name.split(".") if part in sizes), 4)


def base(instruction):
    return instruction.name.split(".")[0]


def inner_loops(code):
    """-> bodies of the loops that hold no other. Branches back to one place are one loop."""
    index = {instruction.address: n for n, instruction in enumerate(code)}
    ends = {}
    for n, instruction in enumerate(code):
        if base(instruction) == "BRA" and (match := re.search(r"\b0x([0-9a-f]+)$", instruction.operands)):
            target = index.get(int(match[1], 16), n + 1)
            if target <= n:
                ends[target] = n
    loops = sorted(ends.items())
    return [code[b:e + 1] for b, e in loops
            if not any(b <= b2 and e2 <= e and (b, e) != (b2, e2) for b2, e2 in loops)]


class Walk:
    """Goes through the body of a loop with the scoreboards of its loads, and the groups of its copies."""

    def __init__(self):
        self.loads = []  # (scoreboard, when, bytes) under way
        self.copies = [[]]  # (when, bytes) by group, the last one open
        self.now, self.last_wait = 0, -1
        self.most, self.waits = 0, 0

    def under_way(self):
        return sum(size for *_, size in self.loads) + sum(size for group in self.copies for _, size in group)

    def wait_for(self, begun):
        """Loads that began at these times must be there."""
        if not begun:
            return
        self.most = max(self.most, self.under_way())
        if max(begun) > self.last_wait:
            self.waits += 1
            self.last_wait = self.now

    def turn(self, body):
        self.waits = 0
        for instruction in body:
            self.now += 1
            kind = base(instruction)
            wanted = [load for load in self.loads if instruction.waits >> load[0] & 1]
            self.wait_for([when for _, when, _ in wanted])
            self.loads = [load for load in self.loads if load not in wanted]
            if kind in ("LDG", "LD") and instruction.writes != 7:
                self.loads.append((instruction.writes, self.now, width(instruction.name)))
            elif kind == "LDGSTS":
                self.copies[-1].append((self.now, width(instruction.name)))
            elif kind == "LDGDEPBAR":
                self.copies.append([])
            elif kind == "DEPBAR" and (match := re.search(r", 0x([0-9a-f]+)$", instruction.operands)):
                left = int(match[1], 16) + 1
                landed = self.copies[:max(0, len(self.copies) - left)]
                self.wait_for([when for group in landed for when, _ in group])
                self.copies = self.copies[len(landed):]


def judge(body):
    """-> (bytes in flight, waits) of a turn of a loop; None if it loads nothing from global memory."""
    loads = [i for i in body if base(i) in ("LDG", "LD", "LDGSTS")]
    if not loads:
        return None
    walk = Walk()
    walk.turn(body)  # the second turn has the loads of one before
    walk.turn(body)
    return walk.most or sum(width(i.name) for i in loads), walk.waits


def blocks_of(sm, threads, registers, shared):
    """How many blocks fit a multiprocessor."""
    max_threads, max_blocks, max_shared = SM[sm]
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    # Registers belong to the four quarters of a multiprocessor.
    by_registers = REGISTERS // 4 // max(of_warp, 1) * 4 // warps
    with_system = -(-(shared + SYSTEM_SHARED) // SHARED_UNIT) * SHARED_UNIT
    return min(max_threads // (warps * 32), max_blocks, by_registers, max_shared // with_system)


def output(*command):
    # cuobjdump starts nvdisasm, which lies beside it.
    path = os.pathsep.join([os.path.dirname(os.path.abspath(shutil.which(command[0]))), os.environ["PATH"]])
    run = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PATH=path))
    if run.returncode != 0:
        sys.exit(f"error: {' '.join(command)}: {run.stderr.strip()}")
    return run.stdout


def named(by_mangled):
    """{mangled name: value} -> the same with names as in docs/kernel_table.tsv, which do not depend on
    where the sources stand."""
    rows = [[mangled, "", value] for mangled, value in by_mangled.items()]
    return {name: value for name, _, value in kernel_table.demangle(rows)} if rows else {}


def bounds_of(ptx):
    """-> {mangled name: (threads of a block, blocks that are asked for)}."""
    entry = re.compile(r"\.entry (\w+)\((?:[^()]*)\)\s*((?:\.\w+ [\d, ]+\s*)*)\{")
    found = {}
    for name, directives in entry.findall(ptx):
        number = {key: int(value) for key, value in re.findall(r"\.(\w+) (\d+)", directives)}
        found[name] = number.get("maxntid", 1024), number.get("minnctapersm", 1)
    return found


def resources_of(listing):
    """`cuobjdump -res-usage` -> {mangled name: (registers, static shared memory)}."""
    return {name: (int(registers), int(shared)) for name, registers, shared in
            re.findall(r"Function (\w+):\s+REG:(\d+) STACK:\d+ SHARED:(\d+)", listing)}


def count(code):
    """-> the columns of in_flight to local of a kernel."""
    loops = [found for body in inner_loops(code) if (found := judge(body))]
    kinds = collections.Counter(base(instruction) for instruction in code)
    return [",".join(str(most) for most, _ in loops) or "-", ",".join(str(waits) for _, waits in loops) or "-",
            kinds["LD"] + kinds["ST"] + kinds["ATOM"], kinds["MEMBAR"], kinds["LDL"] + kinds["STL"],
            kinds["ACQBULK"]]


def examine(cuobjdump, path):
    """-> ({(kernel, sm): columns}, the same of resources, bounds by kernel) of one compiled file."""
    sm = path.stem.rsplit("_", 1)[1]
    by_sm = lambda found: {(name, sm): value for name, value in named(found).items()}
    code = parse(output(cuobjdump, "-sass", str(path)))
    return (by_sm({name: count(body) for name, body in code.items()}),
            by_sm(resources_of(output(cuobjdump, "-res-usage", str(path)))),
            named(bounds_of(output(cuobjdump, "-ptx", str(path)))))


def examine_all(cuobjdump, folder, dynamic):
    """-> rows as in COLUMNS, of every file that kernel_table.py left in the folder."""
    files = sorted(folder.glob("*_[0-9]*.o"), key=lambda path: -path.stat().st_size)
    counts, resources, bounds = {}, {}, {}
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(examine, [cuobjdump] * len(files), files):
            for everything, part in zip((counts, resources, bounds), found):
                everything.update(part)
    rows = []
    for (name, sm), columns in sorted(counts.items()):
        threads, asked = bounds[name]
        registers, shared = resources[name, sm]
        blocks = blocks_of(sm, threads, registers, shared + dynamic.get(name, 0))
        rows.append([name, sm, *map(str, columns), str(blocks), str(asked)])
    return rows


def numbers(text):
    return [int(number) for number in text.split(",") if number != "-"]


def below_floors(rows):
    return [f"{row[0]} sm_{row[1]}: {row[2]} bytes in flight, at least {floor} are needed"
            for row in rows for pattern, floor in FLOORS
            if re.fullmatch(pattern, row[0]) and max(numbers(row[2]), default=0) < floor]


def not_awaiting(rows):
    """Kernels that may begin before the one before them has ended, and do not wait (kernel_order.cuh)."""
    return [f"{row[0]} sm_{row[1]}: it does not wait for earlier kernels"
            for row in rows if row[1] == "90" and row[COLUMNS.index("awaits")] == "0"]


def compare(rows, table):
    """-> list of what is worse than the table says."""
    known = {tuple(row[:2]): row for row in table}
    problems = []
    for row in rows:
        where = f"{row[0]} sm_{row[1]}"
        expected = known.pop(tuple(row[:2]), None)
        if expected is None:
            problems.append(f"{where}: not in the table")
            continue
        for column, value, said in list(zip(COLUMNS, row, expected))[2:]:
            pairs = list(zip(numbers(value), numbers(said)))
            if len(numbers(value)) != len(numbers(said)):
                problems.append(f"{where}: {column} of loops with loads {value}, the table says {said}")
            elif any(a < b if column in ("in_flight", "awaits", "blocks") else a > b for a, b in pairs):
                problems.append(f"{where}: {column} {value}, the table says {said}")
    return problems + [f"{name} sm_{sm}: in the table but not built" for name, sm in known]


def dynamic_shared(path):
    """-> {kernel: the most dynamic shared memory of a block at the shapes of docs/kernel_traffic.tsv}."""
    names, *rows = (line.split("\t") for line in path.read_text().splitlines() if not line.startswith("#"))
    found = collections.Counter()
    for row in rows:
        line = dict(zip(names, row))
        found[line["kernel"]] = max(found[line["kernel"]], int(line["dynamic_shared"]))
    return found


def listing_of(lines):
    """Lines "address: text | scoreboard let go | those waited for" as cuobjdump writes them."""
    text = ["\t\tFunction : Test"]
    for line in lines:
        address, rest = line.strip().split(": ", 1)
        code, writes, waits = (part.strip() for part in rest.split("|"))
        control = int(writes or 7) << 46 | 7 << 49 | sum(1 << int(board) for board in waits.split()) << 52
        text += [f"        /*{address}*/                   {code} ;   /* 0x0000000000000000 */",
                 f"                                              /* 0x{control:016x} */"]
    return "\n".join(text)


# A loop that copies, as ptxas 13.0 writes it for sm_87: R8 to R11 are loaded, then stored.
COPY_LOOP = """\
\t\tFunction : Test
        /*0550*/  IMAD.MOV.U32 R8, RZ, RZ, R17 ;  /* 0x000000ffff087224 */
                /* 0x001fe400078e0011 */
        /*0560*/  IMAD.MOV.U32 R9, RZ, RZ, R18 ;  /* 0x000000ffff097224 */
                /* 0x000fcc00078e0012 */
        /*0570*/  LDG.E.128 R8, [R8.64] ;  /* 0x0000000408087981 */
                /* 0x000ea2000c1e1d00 */
        /*0580*/  IMAD.MOV.U32 R12, RZ, RZ, R15 ;  /* 0x000000ffff0c7224 */
                /* 0x000fe200078e000f */
        /*0590*/  IADD3 R5, P1, R5, 0x1, RZ ;  /* 0x0000000105057810 */
                /* 0x000fe20007f3e0ff */
        /*05a0*/  IMAD.MOV.U32 R13, RZ, RZ, R16 ;  /* 0x000000ffff0d7224 */
                /* 0x000fe200078e0010 */
        /*05b0*/  IADD3 R4, P2, R4, 0x80, RZ ;  /* 0x0000008004047810 */
                /* 0x000fe40007f5e0ff */
        /*05c0*/  IADD3 R17, P3, R17, 0x800, RZ ;  /* 0x0000080011117810 */
                /* 0x000fe20007f7e0ff */
        /*05d0*/  IMAD.X R14, RZ, RZ, R14, P1 ;  /* 0x000000ffff0e7224 */
                /* 0x000fe200008e060e */
        /*05e0*/  ISETP.NE.U32.AND P1, PT, R5, RZ, PT ;  /* 0x000000ff0500720c */
                /* 0x000fe20003f25070 */
        /*05f0*/  IMAD.X R3, RZ, RZ, R3, P2 ;  /* 0x000000ffff037224 */
                /* 0x000fe200010e0603 */
        /*0600*/  IADD3 R15, P4, R15, 0x800, RZ ;  /* 0x000008000f0f7810 */
                /* 0x000fe20007f9e0ff */
        /*0610*/  IMAD.X R18, RZ, RZ, R18, P3 ;  /* 0x000000ffff127224 */
                /* 0x000fe200018e0612 */
        /*0620*/  ISETP.NE.AND.EX P1, PT, R14, RZ, PT, P1 ;  /* 0x000000ff0e00720c */
                /* 0x000fc60003f25310 */
        /*0630*/  IMAD.X R16, RZ, RZ, R16, P4 ;  /* 0x000000ffff107224 */
                /* 0x000fe200020e0610 */
        /*0640*/  STG.E.128 [R12.64], R8 ;  /* 0x000000080c007986 */
                /* 0x0041f2000c101d04 */
        /*0650*/  @P1 BRA 0x550 ;  /* 0xfffffef000001947 */
                /* 0x000fea000383ffff */
"""


def self_test():
    """Loops whose answers follow from their scoreboards, and what fits a multiprocessor."""
    back = "0090: @P0 BRA 0x10 | |"
    cases = [
        ("two loads at once", ["0010: LDG.E.128 R4, [R2.64] | 0 |", "0020: LDG.E.128 R8, [R2.64+0x10] | 0 |",
                               "0030: FFMA R0, R4, R8, R0 | | 0", back], [(32, 1)]),
        ("one after the other", ["0010: LDG.E.128 R4, [R2.64] | 0 |", "0020: FADD R0, R4, R0 | | 0",
                                 "0030: LDG.E.64 R8, [R2.64+0x10] | 0 |", "0040: FADD R0, R8, R0 | | 0", back],
         [(16, 2)]),
        ("two scoreboards, one latency", ["0010: LDG.E.128 R4, [R2.64] | 0 |", "0020: LDG.E.64 R8, [R2.64] | 1 |",
                                          "0030: FADD R0, R4, R0 | | 0", "0040: FADD R0, R8, R0 | | 1", back], [(24, 1)]),
        ("the next turn's", ["0010: FADD R0, R4, R0 | | 0", "0020: LDG.E.128 R4, [R2.64] | 0 |", back], [(16, 1)]),
        ("a wait for shared memory", ["0010: LDG.E R4, [R2.64] | 0 |", "0020: LDS R5, [R6] | 1 |",
                                      "0030: FADD R0, R5, R0 | | 1", "0040: FADD R0, R4, R0 | | 0", back], [(4, 1)]),
        ("streamed", ["0010: LDG.E.NA.LTC128B.128.CONSTANT R4, [R2.64] | 2 |", "0020: FADD R0, R4, R0 | | 2", back],
         [(16, 1)]),
        ("bytes and halves", ["0010: LDG.E.U8 R4, [R2.64] | 0 |", "0020: LDG.E.U16 R5, [R2.64] | 0 |",
                              "0030: FADD R0, R5, R4 | | 0", back], [(3, 1)]),
        ("copies of the last turn", ["0010: LDGSTS.E.BYPASS.128 [R4], [R2.64] | |", "0020: LDGDEPBAR | 0 |",
                                     "0030: DEPBAR.LE SB0, 0x1 | |", back], [(32, 1)]),
        ("copies of this turn", ["0010: LDGSTS.E.BYPASS.128 [R4], [R2.64] | |", "0020: LDGDEPBAR | 0 |",
                                 "0030: DEPBAR.LE SB0, 0x0 | |", back], [(16, 1)]),
        ("copies waited for elsewhere", ["0010: LDGSTS.E.BYPASS.128 [R4], [R2.64] | |",
                                         "0020: LDGSTS.E.BYPASS.128 [R5], [R2.64] | |", back], [(32, 0)]),
        ("an address of any memory", ["0010: LD.E.128 R4, [R2.64] | 0 |", "0020: FADD R0, R4, R0 | | 0", back], [(16, 1)]),
        ("no global memory", ["0010: LDS R4, [R2] | 0 |", "0020: FADD R0, R4, R0 | | 0", back], []),
        ("no loop", ["0010: LDG.E R4, [R2.64] | 0 |", "0020: BRA 0x30 | |", "0030: EXIT | | 0"], []),
        ("the inner of two", ["0010: LDG.E R4, [R2.64] | 0 |", "0020: LDG.E.64 R6, [R4.64] | 1 | 0",
                              "0030: @P1 BRA 0x20 | | 1", back], [(8, 1)]),
        ("two ways back", ["0010: LDG.E R4, [R2.64] | 0 |", "0020: @P1 BRA 0x10 | |",
                           "0030: LDG.E R5, [R2.64] | 0 |", "0040: FADD R0, R4, R5 | | 0", back], [(8, 1)]),
    ]
    problems = []
    for what, lines, expected in cases:
        found = [judge(body) for body in inner_loops(parse(listing_of(lines))["Test"])]
        if [one for one in found if one] != expected:
            problems.append(f"{what}: expected {expected}, got {found}")
    copy = parse(COPY_LOOP)["Test"]
    if len(copy) != 17 or [judge(body) for body in inner_loops(copy)] != [(16, 1)]:
        problems.append(f"the loop of a copy: {[judge(body) for body in inner_loops(copy)]}")
    others = parse(listing_of(["0010: LD.E R4, [R2.64] | 0 |", "0020: ST.E [R2.64], R4 | | 0", "0030: LDL R4, [R1] | 0 |",
                               "0040: STL.64 [R1], R4 | | 0", "0050: MEMBAR.SC.GPU | |", "0060: LDG.E R4, [R2.64] | 0 |",
                               "0070: LDGSTS.E [R4], [R2.64] | |", "0080: STG.E [R2.64], R4 | | 0",
                               "0090: ACQBULK | |"]))["Test"]
    if count(others) != ["-", "-", 2, 1, 2, 1]:
        problems.append(f"kinds: {count(others)}")
    # 37 registers are 40 for each of 32 lanes: 1280 a warp, 12 warps a quarter.
    for arguments, expected in [(("87", 256, 37, 0), 6), (("87", 256, 74, 8192), 3), (("87", 128, 32, 47 << 10), 3),
                                (("90", 1024, 32, 0), 2), (("90", 32, 16, 0), 32), (("87", 128, 255, 0), 2)]:
        if blocks_of(*arguments) != expected:
            problems.append(f"blocks of {arguments}: {blocks_of(*arguments)}, expected {expected}")
    table = [["K", "90", "144,16", "1,2", "0", "0", "0", "1", "3", "1"]]
    for column, worse in [(2, "128,16"), (2, "144"), (3, "2,2"), (4, "1"), (5, "1"), (6, "8"), (7, "0"), (8, "2"), (9, "2")]:
        row = list(table[0])
        row[column] = worse
        if not compare([row], table):
            problems.append(f"{COLUMNS[column]} {worse} is not seen")
    if compare(table, table) or not compare([], table) or not compare([["L", *table[0][1:]], *table], table):
        problems.append("tables")
    if below_floors([["SkinnyKernel<Half, 1, 1, 8, true>", "87", "144,6"]]) or \
            len(below_floors([["SkinnyKernel<Half, 1, 1, 8, true>", "87", "128,16"]])) != 1:
        problems.append("floors")
    if not_awaiting(table) or len(not_awaiting([[*table[0][:7], "0", "3", "1"]])) != 1:
        problems.append("awaiting")
    print("\n".join(f"self-test: {problem}" for problem in problems) or "self-test: all answers as expected")
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, nargs="?", help="what kernel_table.py --keep left")
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--check", type=pathlib.Path, metavar="FILE", help="compare with this table")
    parser.add_argument("--self-test", action="store_true", help="listings whose answers are known")
    args = parser.parse_args()
    if args.self_test:
        sys.exit(self_test())
    if not args.folder:
        parser.error("the folder of compiled kernels is missing")
    if not shutil.which(args.cuobjdump):
        sys.exit(f"error: {args.cuobjdump} is not here; pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    rows = examine_all(args.cuobjdump, args.folder, dynamic_shared(ROOT / "docs/kernel_traffic.tsv"))
    if not rows:
        sys.exit(f"error: no compiled kernel in {args.folder}; see tools/kernel_table.py --keep")
    if not args.check:
        for row in [COLUMNS, *rows]:
            print("\t".join(row))
        return
    table = [line.split("\t") for line in args.check.read_text().splitlines()[1:]]
    problems = below_floors(rows) + not_awaiting(rows) + compare(rows, table)
    for problem in problems:
        print(f"error: {problem}")
    if problems:
        sys.exit(1)
    print(f"{len(rows)} kernels wait for memory as in {args.check}")


if __name__ == "__main__":
    main()
