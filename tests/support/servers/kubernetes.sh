#!/bin/sh
# The control plane of Kubernetes 1.20 on the loopback interface, for the tests that otherwise meet a double.
#
#   kubernetes.sh build FOLDER   builds API server, controller manager and scheduler from Debian 12's source package
#                                (16 minutes on two busy cores, 1.5 GB); needs the packages golang-go and dpkg-dev,
#                                and bookworm's sources (deb-src) in APT's lists
#   kubernetes.sh start FOLDER   starts them until SIGINT or SIGTERM; needs etcd-server, openssl and curl
#
# Then, in another terminal, the tests in one process (-n 0): docs/how-to/kubernetes.md has the command.
# There is no kubelet: the tests create nodes, and run the containers of pods as processes.
set -eu
command=$1
mkdir -p "$2/bin" "$2/log"
folder=$(cd "$2" && pwd)
version=1.20.2
source=$folder/go/src/k8s.io/kubernetes
port=${KUBERNETES_PORT:-36443}
etcd=http://127.0.0.1:$((port + 1)) peers=http://127.0.0.1:$((port + 2))

build() {
    cd "$folder"
    apt-get source --download-only kubernetes/bookworm  # 1.20.5+really1.20.2, without the patches
    mkdir -p "$source"
    tar --extract --gzip --strip-components 1 --directory "$source" --file kubernetes_*.orig.tar.gz
    cd "$source"
    # Its go.mod is too old for Go 1.19.
    export GO111MODULE=off CGO_ENABLED=0 GOPATH="$folder/go" GOCACHE="$folder/cache"
    vendor=k8s.io/kubernetes/vendor/k8s.io
    go build -o "$folder/bin/" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    types=$(grep --recursive --files-with-matches --include='*.go' '+k8s:openapi-gen=' pkg cmd staging/src/k8s.io plugin |
        xargs -n 1 dirname | grep --invert-match --regexp code-generator --regexp sample-apiserver |
        sed 's|^staging/src/|vendor/|; s|^|k8s.io/kubernetes/|' | sort --unique | paste --serial --delimiters ,)
    "$folder/bin/openapi-gen" --logtostderr -i "$types" -p k8s.io/kubernetes/pkg/generated/openapi \
        -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$folder/log/violations"
    flags="-s -w"
    for package in client-go/pkg/version component-base/version; do
        flags="$flags -X $vendor/$package.gitVersion=v$version -X $vendor/$package.gitMajor=1 -X $vendor/$package.gitMinor=20"
    done
    go build -p 2 -tags providerless,dockerless -ldflags "$flags" -o "$folder/bin/" ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler
}

run() {
    log=$folder/log/$1.log
    shift
    "$@" >"$log" 2>&1 &
    pids="$! $pids"
}

start() {
    pids=""
    trap 'for pid in $pids; do kill "$pid" || continue; wait "$pid" || continue; done' EXIT
    trap 'exit 0' INT TERM
    rm -rf "$folder/etcd"
    run etcd etcd --data-dir "$folder/etcd" --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
        --listen-peer-urls "$peers" --initial-advertise-peer-urls "$peers" --initial-cluster "default=$peers" \
        --unsafe-no-fsync
    umask 077
    openssl genrsa -out "$folder/accounts.key" 2048 2>/dev/null
    token=$(openssl rand -hex 16)
    echo "$token,admin,admin,system:masters" >"$folder/tokens.csv"
    run apiserver "$folder/bin/kube-apiserver" --etcd-servers "$etcd" --bind-address 127.0.0.1 --secure-port "$port" \
        --advertise-address 127.0.0.1 --endpoint-reconciler-type none --cert-dir "$folder/certificates" \
        --authorization-mode RBAC --token-auth-file "$folder/tokens.csv" --service-cluster-ip-range 10.0.0.0/24 \
        --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$folder/accounts.key" \
        --service-account-signing-key-file "$folder/accounts.key" --feature-gates TTLAfterFinished=true
    server=https://127.0.0.1:$port certificate=$folder/certificates/apiserver.crt
    cat >"$folder/kubeconfig" <<EOF
{"apiVersion": "v1", "kind": "Config", "current-context": "live",
 "clusters": [{"name": "live", "cluster": {"server": "$server", "certificate-authority": "$certificate"}}],
 "contexts": [{"name": "live", "context": {"cluster": "live", "user": "admin"}}],
 "users": [{"name": "admin", "user": {"token": "$token"}}]}
EOF
    until curl --silent --fail --cacert "$certificate" --header "Authorization: Bearer $token" "$server/readyz"; do
        kill -0 "$!" || exit 1
        sleep 1
    done
    # Nodes have no kubelet that renews their heartbeats.
    run manager "$folder/bin/kube-controller-manager" --kubeconfig "$folder/kubeconfig" --port 0 --secure-port 0 \
        --service-account-private-key-file "$folder/accounts.key" --node-monitor-grace-period 240h \
        --node-monitor-period 1s --leader-elect=false --feature-gates TTLAfterFinished=true
    run scheduler "$folder/bin/kube-scheduler" --kubeconfig "$folder/kubeconfig" --port 0 --secure-port 0 --leader-elect=false
    echo " BENCHLOCK_KUBERNETES=$folder/kubeconfig"
    wait
}

$command
