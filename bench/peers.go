package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

var (
	//go:embed peers/kazoo_peer.py
	kazooSource []byte
	//go:embed peers/CuratorPeer.java
	curatorSource []byte
)

const (
	kazooName   = "kazoo"
	curatorName = "Curator"

	// maxKazooCandidates is small, because each waiting Lock of kazoo occupies a thread.
	maxKazooCandidates   = 100
	maxCuratorCandidates = 1 << 20
)

// unavailable contains the implementations that no package provides, with the reasons.
var unavailable = []absentContestant{{
	"Comcast go-leaderelection",
	"github.com/Comcast/go-leaderelection is not available from the Go module proxy, so this module cannot require it",
}}

// startContestants returns the contestants for the servers at addr, the baseline first. Contestants that
// are not installed are returned as absent.
func (b *bench) startContestants(ctx context.Context, addr string, timeout time.Duration) ([]contestant, []absentContestant) {
	all := []contestant{newBaseline(addr, timeout), newLibrary(addr, timeout)}
	if b.bounds {
		all = append(all, newVerifiedBaseline(verifiedName, addr, timeout), newVerifiedBaseline(tokenName, addr, timeout))
	}
	if b.peers.MatchString(zkLockName) {
		all = append(all, newZKLock(addr, timeout))
	}
	missing := slices.Clone(unavailable)
	for _, peer := range []struct {
		name  string
		start func(ctx context.Context, addr, dir string, timeout time.Duration) (*process, error)
	}{{kazooName, startKazoo}, {curatorName, startCurator}} {
		if !b.peers.MatchString(peer.name) {
			continue
		}
		p, err := peer.start(ctx, addr, b.dir, timeout)
		if err != nil {
			missing = append(missing, absentContestant{peer.name, err.Error()})
			continue
		}
		all = append(all, p)
	}
	return all, missing
}

func closeContestants(all []contestant) error {
	var err error
	for _, c := range all {
		err = errors.Join(err, c.close())
	}
	return err
}

// startKazoo starts the program for kazoo with the first Python on the PATH that has kazoo installed.
func startKazoo(ctx context.Context, addr, dir string, timeout time.Duration) (*process, error) {
	source := filepath.Join(dir, "kazoo_peer.py")
	if err := os.WriteFile(source, kazooSource, 0o644); err != nil {
		return nil, err
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		python := filepath.Join(folder, "python3")
		if exec.CommandContext(ctx, python, "-c", "import kazoo").Run() == nil {
			cmd := exec.CommandContext(ctx, python, source, addr, fmt.Sprint(timeout.Seconds()))
			return startProcess(kazooName, maxKazooCandidates, cmd)
		}
	}
	return nil, errors.New("no python3 on the PATH has kazoo; on Debian: apt-get install -y python3-kazoo")
}

// curatorJars are the paths of Debian's packages. The manifests of the files name their dependencies.
var curatorJars = []string{
	"/usr/share/java/curator-recipes.jar",
	"/usr/share/java/curator-framework.jar",
	"/usr/share/java/curator-client.jar",
	"/usr/share/java/slf4j-nop.jar",
}

// startCurator compiles and starts the Java program for Curator.
func startCurator(ctx context.Context, addr, dir string, timeout time.Duration) (*process, error) {
	for _, jar := range curatorJars {
		if _, err := os.Stat(jar); err != nil {
			return nil, fmt.Errorf("no %s; on Debian: apt-get install -y libcurator-recipes-java", jar)
		}
	}
	for _, program := range []string{"java", "javac"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("no %s on the PATH; on Debian: apt-get install -y openjdk-17-jdk-headless", program)
		}
	}
	path := strings.Join(slices.Concat(curatorJars, []string{dir}), string(filepath.ListSeparator))
	if _, err := os.Stat(filepath.Join(dir, "CuratorPeer.class")); err != nil {
		source := filepath.Join(dir, "CuratorPeer.java")
		if err := os.WriteFile(source, curatorSource, 0o644); err != nil {
			return nil, err
		}
		if out, err := exec.CommandContext(ctx, "javac", "-cp", path, "-d", dir, source).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("javac: %w: %s", err, out)
		}
	}
	java := exec.CommandContext(ctx, "java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", path, "CuratorPeer", addr, fmt.Sprint(timeout.Seconds()))
	p, err := startProcess(curatorName, maxCuratorCandidates, java)
	if err == nil {
		p.version = strings.TrimSpace(jarVersion(curatorJars[0]) + " " + p.version)
	}
	return p, err
}

// jarVersion returns the version in the name of a versioned link next to the jar.
func jarVersion(jar string) string {
	prefix := strings.TrimSuffix(jar, ".jar") + "-"
	links, err := filepath.Glob(prefix + "[0-9]*.jar")
	if err != nil || len(links) == 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(links[0], prefix), ".jar")
}
