"""Builds the C++ library once per instruction set; without a compiler, focuse runs without it."""

import copy
import os
import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FLAGS = ["-Wno-psabi", "-O3", "-std=c++20", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-pthread"]
# Named as by torch.backends.cpu.get_cpu_capability(); any other processor runs the default.
X86 = {
    "avx512": ["-march=x86-64-v4", "-mprefer-vector-width=512"],
    "avx2": ["-march=x86-64-v3"],
}
LEVELS = {"default": []} | (X86 if platform.machine().lower() in ("x86_64", "amd64") else {})
HEADERS = sorted(map(str, Path("src/focuse/engines/native").glob("*.hpp")))
SOURCES = ["src/focuse/engines/native/steps.cpp", "src/focuse/engines/native/ranking.cpp"]


class Build(build_ext):
    """Builds plain shared libraries, without the init symbol of a Python module, all in parallel."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = os.cpu_count() or 1

    def build_extension(self, ext: Extension) -> None:
        """Compile into a folder per instruction set: the sources are shared, the objects must not be."""
        separate = copy.copy(self)
        separate.build_temp = os.path.join(self.build_temp, ext.name)
        build_ext.build_extension(separate, ext)

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
