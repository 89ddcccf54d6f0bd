#!/bin/bash
# Builds the programs that the stories, the demo and the benchmarks run, from the Go modules pinned in the folders next to
# this file, into $CAPW_CACHE/tools/NAME-VERSION/ (default: $XDG_CACHE_HOME/capw, or ~/.cache/capw). prune.sh says
# how long they are kept.
# Needs only go. Takes 8 min on 2 cores the first time, a minute with a warm build cache.
# Usage: build.sh [previous]                 Builds the release before this one too, if asked. A second one waits for the first.
#        build.sh --path vcsim|fakepve|policies|specs|previous
#                                            Prints where that program of this checkout is, built or not.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${CAPW_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/capw}
mkdir -p "$CACHE/tools"; CACHE=$(cd "$CACHE/tools" && pwd)
version() { sed -n "s#^.*[[:space:]]$2 v\([0-9.]*\).*#\1#p" "$HERE/$1/go.mod" | head -n 1; }       # version FOLDER MODULE
# Their main programs are ours: another one is another version.
VCSIM=$(version vcsim github.com/vmware/govmomi)-$(cat "$HERE"/vcsim/*.go | cksum | cut -d ' ' -f 1)
FAKEPVE=$(sed -n 's/^fakepve==//p' "$HERE/fakepve/requirements.txt")-$(cat "$HERE"/fakepve/* | cksum | cut -d ' ' -f 1)
SPECS=$(sed -n 's#^[[:space:]]*sigs.k8s.io/cluster-api/test v\([0-9.]*\).*#\1#p' "$HERE/../specs/go.mod")-$(cat "$HERE"/../specs/*.go "$HERE"/../specs/go.* | cksum | cut -d ' ' -f 1)
POLICIES=$(version kubernetes k8s.io/kubernetes)-$(cat "$HERE"/kubernetes/policies/*.go | cksum | cut -d ' ' -f 1)
. "$HERE/../stories/upgrade/previous.env"
case ${1:-} in
    ''|previous) ;;
    --path) case ${2:-} in
        vcsim) echo "$CACHE/vcsim-$VCSIM/vcsim"; exit ;;
        fakepve) echo "$CACHE/fakepve-$FAKEPVE/fakepve"; exit ;;
        policies) echo "$CACHE/policies-$POLICIES/policies"; exit ;;
        specs) echo "$CACHE/specs-$SPECS/specs"; exit ;;
        previous) echo "$CACHE/capw-$PREVIOUS_COMMIT/capw"; exit ;;
        *) echo "build.sh: --path knows vcsim, fakepve, policies, specs and previous, not '${2:-}'" >&2; exit 2 ;;
        esac ;;
    *) echo "build.sh: $1 is unknown; usage: build.sh [previous | --path vcsim|fakepve|policies|specs|previous]" >&2; exit 2 ;;
esac
command -v go > /dev/null || { echo "build.sh: the program go is missing; install Go 1.26 or later, https://go.dev/doc/install" >&2; exit 1; }
if command -v flock > /dev/null; then exec 9> "$CACHE/lock"; flock 9; fi
# The folders' go.sum files pin everything: nothing here may change them.
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

K8S=$(version kubernetes k8s.io/kubernetes) ETCD=$(version kubernetes go.etcd.io/etcd/server/v3)
CAPI=$(version cluster-api sigs.k8s.io/cluster-api) CERTS=$(version cert-manager github.com/cert-manager/cert-manager)

build() {       # build NAME VERSION FOLDER PACKAGE [PACKAGE-WITH-VERSION-VARIABLES]
    local from=$SECONDS name=$1 version=$2 flags="-s -w" to="$CACHE/$1-$2" major minor
    touch -c "$to"
    if [ -x "$to/$name" ]; then return; fi
    major=${version%%.*} minor=${version#*.} minor=${minor%%.*}
    if [ $# -gt 4 ]; then flags="$flags -X $5.gitVersion=v$version -X $5.gitMajor=$major -X $5.gitMinor=$minor -X $5.gitTreeState=clean"; fi
    mkdir -p "$to"
    (cd "$HERE/$3" && go build -buildvcs=false -trimpath -ldflags "$flags" -o "$to/$name.part" "$4")
    mv "$to/$name.part" "$to/$name"         # an interrupted build leaves nothing that looks finished
    echo "$name $version: $((SECONDS - from)) s"
}

for program in kubectl kubeadm kube-scheduler kube-controller-manager kube-apiserver; do
    build $program "$K8S" kubernetes k8s.io/kubernetes/cmd/$program k8s.io/component-base/version
done
build policies "$POLICIES" kubernetes ./policies
build etcd "$ETCD" kubernetes go.etcd.io/etcd/server/v3
build capi-core "$CAPI" cluster-api sigs.k8s.io/cluster-api/core sigs.k8s.io/cluster-api/version
build vcsim "$VCSIM" vcsim .
build clusterctl "$CAPI" cluster-api sigs.k8s.io/cluster-api/cmd/clusterctl sigs.k8s.io/cluster-api/version

# Cluster API's own specs. A test program is built by another command.
to=$CACHE/specs-$SPECS
touch -c "$to"
if [ ! -x "$to/specs" ]; then
    from=$SECONDS; mkdir -p "$to"
    (cd "$HERE/../specs" && go test -c -vet=off -tags e2e -buildvcs=false -trimpath -ldflags "-s -w" -o "$to/specs.part" .)
    mv "$to/specs.part" "$to/specs"
    echo "specs $SPECS: $((SECONDS - from)) s"
fi

# The release before this one, for `make upgrade`: its program, not optimized, and its manifests.
to=$CACHE/capw-$PREVIOUS_COMMIT
if [ "${1:-}" = previous ]; then touch -c "$to"; fi
if [ "${1:-}" = previous ] && [ ! -x "$to/capw" ]; then
    from=$SECONDS; rm -rf "$to"; mkdir -p "$to/source"
    git -C "$HERE/../.." archive "$PREVIOUS_COMMIT" | tar -x -C "$to/source"
    (cd "$to/source" && CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 cargo build --quiet --locked --bin capw --target-dir "$to/target")
    mv "$to/target/debug/capw" "$to/capw"; rm -rf "$to/target"
    echo "capw $PREVIOUS_VERSION: $((SECONDS - from)) s"
fi

# fakepve, for the tests of the driver for Proxmox VE. It is a tool of these tests only: it is not part of what is built here, and of another
# licence.
to=$CACHE/fakepve-$FAKEPVE
touch -c "$to"
if [ ! -x "$to/fakepve" ]; then
    if python3 -m pip --version > /dev/null 2>&1; then
        rm -rf "$to"; mkdir -p "$to"
        python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --only-binary :all: --no-deps \
            --target "$to/site" --requirement "$HERE/fakepve/requirements.txt"
        cp "$HERE"/fakepve/*.py "$to/"
        printf '#!/bin/sh\nhere=$(dirname "$0")\nPYTHONPATH=$here/site exec python3 -B "$here/main.py" "$@"\n' > "$to/fakepve.part"
        chmod +x "$to/fakepve.part"; mv "$to/fakepve.part" "$to/fakepve"
        echo "fakepve $FAKEPVE"
    elif [ -n "${CI:-}" ]; then
        echo "build.sh: fakepve needs python3 with pip" >&2; exit 1
    else
        echo "fakepve is NOT INSTALLED: python3 with pip is missing; the tests of the driver for Proxmox VE do not run without it"
    fi
fi

source_of() { (cd "$HERE/$1" && go mod download "$2" && go list -m -f '{{.Dir}}' "$2"); }      # source_of FOLDER MODULE: where its files are

# Cluster API core's manifests, twice: as published, for clusterctl's local repository, and without what needs a cluster
# that runs pods (its Deployment, the Service of its webhooks, cert-manager's objects).
to=$CACHE/capi-core-$CAPI
if [ ! -e "$to/capi-core.yaml" ]; then
    from=$(source_of cluster-api sigs.k8s.io/cluster-api)
    cp -f "$from/metadata.yaml" "$to/metadata.yaml"; chmod u+w "$to/metadata.yaml"
    # kustomize accepts only relative paths, and the module's folder is read-only.
    work=$(mktemp -d "$to/kustomize.XXXXXX"); trap 'rm -rf "$work"' EXIT
    cp -R "$from/core/config" "$work/config"; chmod -R u+w "$work"
    { echo "resources: [config/default]"; echo "patches:"
      for kind in Deployment Service Certificate Issuer; do echo "- {target: {kind: $kind}, patch: '{\$patch: delete, kind: $kind, metadata: {name: any}}'}"; done
    } > "$work/kustomization.yaml"
    kubectl=$CACHE/kubectl-$K8S/kubectl
    "$kubectl" kustomize "$work/config/default" > "$to/core-components.yaml"
    "$kubectl" kustomize "$work" > "$work/capi-core.yaml"; mv "$work/capi-core.yaml" "$to/capi-core.yaml"
    echo "capi-core.yaml, core-components.yaml $CAPI"
fi

# What clusterctl installs as cert-manager: a namespace and the CRDs. It waits for Deployments, and there are none.
to=$CACHE/cert-manager-$CERTS
touch -c "$to"
if [ ! -e "$to/cert-manager.yaml" ]; then
    mkdir -p "$to"; from=$(source_of cert-manager github.com/cert-manager/cert-manager)
    { printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: cert-manager\n'
      for file in "$from"/deploy/crds/*.yaml; do echo ---; cat "$file"; done; } > "$to/cert-manager.yaml.part"
    mv "$to/cert-manager.yaml.part" "$to/cert-manager.yaml"
    echo "cert-manager.yaml $CERTS"
fi

. "$HERE/prune.sh"
prune kubectl kubeadm kube-scheduler kube-controller-manager kube-apiserver etcd policies capi-core vcsim clusterctl specs capw fakepve cert-manager
