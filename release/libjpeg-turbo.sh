#!/bin/sh
# Builds libjpeg-turbo in a container of manylinux, for the C extension highway.images._jpeg; cibuildwheel runs this before all wheels.
set -eu

version=3.1.0
sha256=9564c72b1dfd1d6fe6274c5f95a8d989b59854575d4bbee44ade7bc17aa9bc93
archive=libjpeg-turbo-$version.tar.gz

yum install -y -q nasm  # which libjpeg-turbo needs for the SIMD code of x86
cd "$(mktemp -d)"
curl -fsSLO "https://github.com/libjpeg-turbo/libjpeg-turbo/releases/download/$version/$archive"
echo "$sha256  $archive" | sha256sum -c -
tar xzf "$archive"
cmake -S "libjpeg-turbo-$version" -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr/local -DCMAKE_INSTALL_LIBDIR=lib \
    -DENABLE_STATIC=OFF -DREQUIRE_SIMD=ON -DWITH_TURBOJPEG=OFF
cmake --build build -j "$(nproc)"
cmake --install build
