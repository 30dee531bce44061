"""Builds the CPU engine's loops, once for each kind of processor; without a compiler focuse goes without them."""

import copy
import os
import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FLAGS = ["-Wno-psabi", "-O3", "-std=c++20", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-pthread"]
# As torch.backends.cpu.get_cpu_capability() calls them; what is not listed there runs the default.
X86 = {
    "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
    "avx2": ["-march=x86-64-v3"],
}
LEVELS = {"default": []} | (X86 if platform.machine().lower() in ("x86_64", "amd64") else {})
HEADERS = sorted(map(str, Path("src/focuse/engines/native").glob("*.hpp")))
SOURCES = ["src/focuse/engines/native/steps.cpp", "src/focuse/engines/native/ranking.cpp"]


class Build(build_ext):
    """A plain shared library needs no symbol that Python could call; the kinds are built side by side."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = os.cpu_count() or 1

    def build_extension(self, ext: Extension) -> None:
        """The kinds share their sources: a folder of objects for each, or one kind would link what another compiled."""
        apart = copy.copy(self)
        apart.build_temp = os.path.join(self.build_temp, ext.name)
        build_ext.build_extension(apart, ext)

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return ext.export_symbols


setup(
    cmdclass={"build_ext": Build},
    ext_modules=[
        Extension(
            f"focuse.engines.native.{level}",
            SOURCES,
            depends=HEADERS,
            extra_compile_args=[*FLAGS, *flags],
            extra_link_args=["-pthread"],
            optional=True,
        )
        for level, flags in LEVELS.items()
    ],
)
