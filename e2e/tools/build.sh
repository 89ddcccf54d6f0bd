#!/bin/bash
# Builds the programs that the stories, the demo and the benchmarks run, from the Go modules pinned in the folders next to
# this file, into $CAPW_CACHE/tools/NAME-VERSION/ (default: .cache at the top of the checkout). Existing programs are kept.
# Needs only go. Takes 8 min on 2 cores the first time, a minute with a warm build cache.
# Usage: build.sh          A second one waits for the first.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
CACHE=${CAPW_CACHE:-$HERE/../../.cache}
mkdir -p "$CACHE/tools"; CACHE=$(cd "$CACHE/tools" && pwd)
command -v go > /dev/null || { echo "build.sh: the program go is missing; install Go 1.26 or later, https://go.dev/doc/install" >&2; exit 1; }
if command -v flock > /dev/null; then exec 9> "$CACHE/lock"; flock 9; fi
# The folders' go.sum files pin everything: nothing here may change them.
export CGO_ENABLED=0 GOWORK=off GOFLAGS=-mod=readonly

version() { sed -n "s#^.*[[:space:]]$2 v\([0-9.]*\).*#\1#p" "$HERE/$1/go.mod" | head -n 1; }       # version FOLDER MODULE
K8S=$(version kubernetes k8s.io/kubernetes) ETCD=$(version kubernetes go.etcd.io/etcd/server/v3)
CAPI=$(version cluster-api sigs.k8s.io/cluster-api) CERTS=$(version cert-manager github.com/cert-manager/cert-manager)
# Its main program is ours: another one is another version.
VCSIM=$(version vcsim github.com/vmware/govmomi)-$(cat "$HERE"/vcsim/*.go | cksum | cut -d ' ' -f 1)

build() {       # build NAME VERSION FOLDER PACKAGE [PACKAGE-WITH-VERSION-VARIABLES]
    local from=$SECONDS name=$1 version=$2 flags="-s -w" to="$CACHE/$1-$2" major minor
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
build etcd "$ETCD" kubernetes go.etcd.io/etcd/server/v3
build capi-core "$CAPI" cluster-api sigs.k8s.io/cluster-api/core sigs.k8s.io/cluster-api/version
build vcsim "$VCSIM" vcsim .
build clusterctl "$CAPI" cluster-api sigs.k8s.io/cluster-api/cmd/clusterctl sigs.k8s.io/cluster-api/version

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
if [ ! -e "$to/cert-manager.yaml" ]; then
    mkdir -p "$to"; from=$(source_of cert-manager github.com/cert-manager/cert-manager)
    { printf -- '---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: cert-manager\n'
      for file in "$from"/deploy/crds/*.yaml; do echo ---; cat "$file"; done; } > "$to/cert-manager.yaml.part"
    mv "$to/cert-manager.yaml.part" "$to/cert-manager.yaml"
    echo "cert-manager.yaml $CERTS"
fi
