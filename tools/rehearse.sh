#!/bin/sh
# rehearse.sh DIRECTORY [quick] makes the release that CHANGELOG.md announces, in a clone in a new directory, and
# uses it as its users will: it tags each module, serves the modules by a module proxy, installs both commands from
# it, runs the program of README.md, and builds archives, packages and an image. It publishes nothing. If everything
# succeeds, it prints the command that publishes the commits and tags of the clone.
#
# With quick, it checks neither each module alone (make modules) nor go vet, builds archives only for the platform
# of this machine, and does not print that command.
#
# The versions of its tools are those of the workflow "release"; the go command downloads and compiles them. It
# tests the Debian package only if dpkg-deb is installed, and the image only if a container engine answers.
set -eu

quick=${2:-}
[ -z "$quick" ] || [ "$quick" = quick ] || { echo "usage: rehearse.sh DIRECTORY [quick]" >&2; exit 2; }
root=$(git rev-parse --show-toplevel)
mkdir -p "$1"
directory=$(cd "$1" && pwd)
repository=$directory/repository
core=github.com/go-leaderelection/leaderelection
platform=$(go env GOOS)_$(go env GOARCH)

step() { printf '\n== %s\n' "$*"; }
fail() {
	echo "rehearsal: $*" >&2
	exit 1
}
require_version() { # BINARY NAME
	printed=$("$1" --version)
	[ "$printed" = "$2 version $version" ] || fail "$1 --version prints '$printed', and the release is $version"
	echo "$1: $printed"
}

[ -z "$(ls -A "$directory")" ] || fail "$directory is not empty"
[ -z "$(git -C "$root" status --porcelain)" ] || fail "the working tree has uncommitted changes"

version=$(sed -n 's/^## \(v[0-9][^ ]*\) (unreleased)$/\1/p' "$root/CHANGELOG.md")
[ "$(echo "$version" | wc -w)" -eq 1 ] || fail "CHANGELOG.md must have one section '## vX.Y.Z (unreleased)', and has '$version'"
sed -n "/^## $version /,/^## v/p" "$root/CHANGELOG.md" | sed 1d | grep -q '^- ' || fail "the section $version of CHANGELOG.md has no entry"

step "$version: commit and tags"
git clone -q "$root" "$repository"
cd "$repository"
git remote set-url origin "$(git -C "$root" remote get-url origin 2>/dev/null || echo "https://$core.git")"
git config user.name "$(git -C "$root" log -1 --format=%cn)"
git config user.email "$(git -C "$root" log -1 --format=%ce)"
(cd tools && GOWORK=off go run ./repository version "$version")
sed "s/^## $version (unreleased)\$/## $version - $(date -u +%F)/" CHANGELOG.md >"$directory/changelog"
mv "$directory/changelog" CHANGELOG.md
git commit -q -am "Release $version"
[ "$quick" ] || (cd tools && GOWORK=off go run ./repository check)
(cd tools && GOWORK=off go run ./repository tag)
tags=$(git tag --points-at HEAD)

step "exported API, compared with the commit in tools/repository/base"
(cd tools && GOWORK=off go test -count 1 ./repository -run '^TestAPI_DocumentIsUpToDate$')
git diff --stat "$(cat tools/repository/base)" HEAD -- docs/api.txt
git diff "$(cat tools/repository/base)" HEAD -- docs/api.txt | sed -n 's/^-\([^-]\)/removed or changed: \1/p'

if [ -z "$quick" ]; then
	step "go vet"
	go vet work
fi

step "modules, as a module proxy gets them from the tags"
modules=$(for tag in $tags; do echo "$core/$tag" | sed "s,/$version\$,@$version,"; done)
(
	cd "$directory"
	export GOMODCACHE="$directory/proxy" GOFLAGS=-modcacherw GONOPROXY=$core GONOSUMDB=$core GIT_CONFIG_COUNT=1
	export GIT_CONFIG_KEY_0="url.file://$repository.insteadOf" GIT_CONFIG_VALUE_0="https://$core"
	for module in $modules; do
		go mod download "$module"
		cmp "$repository/LICENSE" "proxy/$module/LICENSE" || fail "$module does not contain the licence"
		echo "$module"
	done
)

step "commands and a program, as users get them"
(
	# Files that this machine has downloaded before are not downloaded again.
	GOPROXY="file://$directory/proxy/cache/download,file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
	# The flags are those with which the archives are built, so that packages are compiled only once.
	export GOPROXY GOMODCACHE="$directory/user" GOBIN="$directory/bin" GONOSUMDB=$core GOFLAGS="-trimpath -modcacherw" CGO_ENABLED=0
	mkdir "$directory/program"
	cd "$directory/program"
	for command in elector raftlog; do
		go install "$core/cmd/$command@$version"
		require_version "$GOBIN/$command" $command
	done
	awk '/^```go$/ {on = 1; next} /^```$/ && on {exit} on' "$repository/README.md" >main.go
	go mod init example
	go get "$core@$version"
	go mod tidy
	go vet .
	go run .
)

step "archives, packages and lists of modules"
goreleaser=$(sed -n 's/.*{version: \(v[^,]*\), args: release .*/\1/p' .github/workflows/release.yml)
cyclonedx=$(sed -n 's/.*cyclonedx-gomod@\(v.*\)/\1/p' .github/workflows/release.yml)
(
	export GOWORK=off GOFLAGS= GOBIN="$directory/tools"
	go install "github.com/goreleaser/goreleaser/v2@$goreleaser"
	go install "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$cyclonedx"
)
configuration=.goreleaser.yaml
if [ "$quick" ]; then
	configuration=$directory/goreleaser.yaml
	sed "s/goos: \[.*,.*/goos: [$(go env GOOS)]/; s/goarch: \[.*,.*/goarch: [$(go env GOARCH)]/" .goreleaser.yaml >"$configuration"
fi
PATH="$directory/tools:$PATH" GORELEASER_CURRENT_TAG=$version \
	goreleaser release --config "$configuration" --clean --skip=publish,announce,sign,docker
(cd dist && sha256sum --check checksums.txt)
for command in elector raftlog; do
	require_version "$(ls dist/${command}_"$platform"*/$command)" $command
done

if command -v dpkg-deb >/dev/null; then
	step "Debian package"
	dpkg-deb --info dist/*"$platform".deb | grep -E '^ (Package|Version|Architecture|Installed-Size):'
	dpkg-deb --extract dist/*"$platform".deb "$directory/package"
	cd "$directory/package/usr"
	require_version bin/elector elector
	require_version bin/raftlog raftlog
	ls -d share/doc/leaderelection/copyright share/doc/leaderelection/examples/systemd/report.service \
		share/man/man1/elector.1 share/man/man1/raftlog.1 share/bash-completion/completions/elector \
		share/zsh/vendor-completions/_elector share/fish/vendor_completions.d/elector.fish
	cd "$repository"
fi

if docker version >/dev/null 2>&1; then
	step "container image"
	mkdir -p "$directory/image/linux/$(go env GOARCH)"
	cp dist/elector_"$platform"*/elector "$directory/image/linux/$(go env GOARCH)"
	image=elector-rehearsal:$version
	docker build -q --build-arg "TARGETPLATFORM=linux/$(go env GOARCH)" -t "$image" \
		-f examples/elector/container/release.Containerfile "$directory/image" >/dev/null
	docker run --rm "$image" --version
	docker image ls "$image"
	docker image rm "$image" >/dev/null
fi

git rev-parse HEAD >tools/repository/base
git commit -q -am "modules: build $version with later core modules"

rm -rf "$directory/proxy" "$directory/user"
[ -z "$quick" ] || {
	step "the quick rehearsal of $version has succeeded"
	exit
}
step "the rehearsal has succeeded; this publishes $version"
echo git -C "$repository" push --atomic origin HEAD:main $tags
