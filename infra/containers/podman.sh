# shellcheck shell=sh
# Sourced by test.sh: podman on Debian with storage, networks and settings of its own, so that what else runs on the
# machine is never touched; the base image and the stand-ins that take the place of a registry's.
packages="podman buildah runc debootstrap iptables netavark aardvark-dns"
images=localhost/sub100
tag=test
base="$images/base:bookworm"

install_podman() {
    [ "$(id -u)" = 0 ] || fail "needs root: debootstrap and podman's networks do"
    command -v apt-get >/dev/null || fail "needs Debian or Ubuntu: there is no apt-get"
    for package in $packages; do
        if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok'; then
            say "apt-get install $packages"
            quietly 300 apt-get update
            # shellcheck disable=SC2086 # a list of words
            quietly 600 env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages
            return
        fi
    done
}

# crun refuses some hosts' cgroup layout, a host's own limits may be below podman's defaults, and there is no systemd
# or journal to rely on.
configure_podman() {
    cat >"$state/containers.conf" <<EOF
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "$state/networks"
EOF
    cat >"$state/storage.conf" <<EOF
[storage]
driver = "overlay"
graphroot = "$state/storage"
runroot = "$state/runroot"
EOF
    export CONTAINERS_CONF="$state/containers.conf" CONTAINERS_STORAGE_CONF="$state/storage.conf"
}

# Debian with Python, plus this machine's certificates: behind a proxy that signs its own, pip needs them.
make_base() {
    podman image exists "$base" && return
    say "base image from debootstrap (a minute)"
    rm -rf "$state/rootfs"
    quietly 600 debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$state/rootfs"
    cp /etc/ssl/certs/ca-certificates.crt "$state/rootfs/etc/ssl/certs/ca-certificates.crt"
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$state/rootfs/etc/pip.conf"
    quietly 120 tar -C "$state/rootfs" -cf "$state/rootfs.tar" .
    quietly 300 podman import "$state/rootfs.tar" "$base"
    rm -rf "$state/rootfs" "$state/rootfs.tar"
}

# build DOCKERFILE TARGET NAME
build() {
    say "image $images/$3:$tag"
    quietly 900 podman build --format docker --network host --build-arg "BASE_IMAGE=$base" \
        -f "$1" --target "$2" -t "$images/$3:$tag" "$root"
}

build_images() {
    for name in ingress cache scheduler traces engine-sim; do
        build "$root/infra/images/Dockerfile" "$name" "$name"
    done
    for name in nats redis; do
        build "$root/infra/containers/standins/Dockerfile" "$name" "standin-$name"
    done
    quietly 60 podman image prune --force
}
