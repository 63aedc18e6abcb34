"""The tests that need AVX-512, in the emulated machine: `python -m tests.emulated.run [SUITE ...]`, from the checkout's root.

kernels   the kernel families' own tests, built for avx512        simd   kernels/simd: every operation, and the functions' accuracy
models    compiled models, loaded by the runtime                  rows   the operators' samples, compiled, against eager (see --every)
program   --program "PATH ARGUMENTS": a program of your own
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.emulated.guest import ROOT, Program, Result, run_command, run_guest

SIMD_STEP = 149993  # every so many floats of all 2^32 in tests/simd/accuracy.cc; prime


def cmake_list(name: str) -> list[str]:
    """A variable of kernels/CMakeLists.txt, so that the flags are those of the build."""
    found = re.search(rf"set\({name} ([^)]*)\)", (ROOT / "kernels/CMakeLists.txt").read_text())
    assert found, f"kernels/CMakeLists.txt sets no {name}"
    return found.group(1).split()


def kernels(directory: Path, every: int) -> list[Program]:
    """Each family's test, with one of `every` cases: its definition in scalar doubles is what takes the time there."""
    isa = ["-std=c++17", *cmake_list("SEALIFT_ISA_FLAGS_avx512")]
    objects = []
    for source in cmake_list("SEALIFT_KERNEL_SOURCES"):
        objects.append(str(directory / f"{Path(source).stem}.o"))
        run_command(["g++", *isa, *cmake_list("SEALIFT_KERNEL_FLAGS"), "-c", str(ROOT / "kernels" / source), "-o", objects[-1]])
    programs = []
    families = re.search(r"foreach\(family ([^)]*)\)", (ROOT / "kernels/CMakeLists.txt").read_text())
    assert families, "kernels/CMakeLists.txt names no family to test"
    for test in (ROOT / f"kernels/tests/{family}_test.cpp" for family in families.group(1).split()):
        programs.append(Program(directory / test.stem))
        begin = "void run_case(const Case &t, Random &random) {"
        text = test.read_text()
        less = directory / test.name
        less.write_text(text.replace(begin, f"{begin} static int64_t number; if (number++ % {every}) return;"))
        run_command(["g++", *isa, "-O2", f"-I{test.parent}", str(less), *objects, "-lpthread", "-lm", "-o", str(programs[-1].path)])
    return programs


def simd(directory: Path, every: int) -> list[Program]:
    from tests.simd.test_simd import TARGETS

    target = next(t for t in TARGETS if t.name == "avx512")
    programs = [Program(directory / "simd_ops"), Program(directory / "simd_accuracy", (str(SIMD_STEP if every > 1 else 2999),))]
    for program in programs:
        run_command(target.command(f"../emulated/{program.path.name}.cc", program.path))
    return programs


def models(directory: Path, every: int) -> list[Program]:
    from tests.emulated.models import CASES, prepare

    return [prepare(case, directory) for case in CASES]


SUITES: dict[str, Callable[[Path, int], Sequence[Program]]] = {"kernels": kernels, "simd": simd, "models": models}


def report(results: Sequence[Result]) -> bool:
    for r in results:
        print(f"{r.name}: {'no answer' if r.status is None else 'passed' if r.status == 0 else f'failed with {r.status}'} in {r.seconds:.0f} s")
    return all(r.status == 0 for r in results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, "rows", []], help="default: simd kernels models")
    parser.add_argument("--only", default="", help="of the programs, those whose name has this")
    parser.add_argument("--program", action="append", default=[], help='"PATH ARGUMENTS"; several are allowed')
    parser.add_argument("--every", type=int, default=8, help="kernels: one of so many cases; rows: of operators; 1: all, and a finer accuracy test")
    parser.add_argument("--model", default="corei7_skylake_x", help="a CPU of `bochs --help cpu`")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds")
    options = parser.parse_args()
    suites = options.suites or ([] if options.program else list(SUITES))
    passed = True
    with tempfile.TemporaryDirectory(prefix="sealift-emulated-") as name:
        programs = [Program(Path(words[0]).resolve(), words[1:]) for words in (text.split() for text in options.program)]
        for suite in suites:
            if suite in SUITES:
                programs += SUITES[suite](Path(name), options.every)
        programs = [p for p in programs if options.only in p.path.name or any(options.only in a for a in p.arguments)]
        if programs:
            passed &= report(run_guest(programs, options.model, timeout_s=options.timeout)[0])
        if "rows" in suites:
            from tests.emulated.rows import run_rows

            passed &= run_rows(Path(name), options.every, options.only, options.model, options.timeout)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
