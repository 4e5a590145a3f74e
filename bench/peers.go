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
)

// How contestants in other languages are found and started.

var (
	//go:embed peers/kazoo_peer.py
	kazooSource []byte
	//go:embed peers/CuratorPeer.java
	curatorSource []byte
)

const (
	kazooName   = "kazoo"
	curatorName = "Curator"
	comcastName = "Comcast go-leaderelection"

	// kazooMost: a waiting kazoo Lock is a thread.
	kazooMost   = 100
	curatorMost = 1 << 20
)

// never are contestants that cannot be had.
var never = []absent{{
	comcastName, "github.com/Comcast/go-leaderelection is not available from the Go module proxy, so this module cannot require it",
}}

func timeoutSeconds() string { return fmt.Sprint(sessionTimeout.Seconds()) }

// startKazoo starts kazoo with the first Python on the PATH that has it.
func startKazoo(ctx context.Context, addr, dir string) (*peer, error) {
	source := filepath.Join(dir, "kazoo_peer.py")
	if err := os.WriteFile(source, kazooSource, 0o644); err != nil {
		return nil, err
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		python := filepath.Join(folder, "python3")
		if exec.CommandContext(ctx, python, "-c", "import kazoo").Run() == nil {
			return startPeer(kazooName, kazooMost, exec.CommandContext(ctx, python, source, addr, timeoutSeconds()))
		}
	}
	return nil, errors.New("no python3 on the PATH has kazoo; on Debian: apt-get install -y python3-kazoo")
}

// curatorJars are where Debian installs them; their manifests name the rest.
var curatorJars = []string{
	"/usr/share/java/curator-recipes.jar",
	"/usr/share/java/curator-framework.jar",
	"/usr/share/java/curator-client.jar",
	"/usr/share/java/slf4j-nop.jar",
}

// startCurator compiles and starts the Java contestant.
func startCurator(ctx context.Context, addr, dir string) (*peer, error) {
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
	source := filepath.Join(dir, "CuratorPeer.java")
	if err := os.WriteFile(source, curatorSource, 0o644); err != nil {
		return nil, err
	}
	path := strings.Join(slices.Concat(curatorJars, []string{dir}), string(filepath.ListSeparator))
	if out, err := exec.CommandContext(ctx, "javac", "-cp", path, "-d", dir, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("javac: %w: %s", err, out)
	}
	java := exec.CommandContext(ctx, "java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", path, "CuratorPeer", addr, timeoutSeconds())
	p, err := startPeer(curatorName, curatorMost, java)
	if err == nil {
		p.version = strings.TrimSpace(jarVersion(curatorJars[0]) + " " + p.version)
	}
	return p, err
}

// jarVersion is what the name of the other link to the jar says.
func jarVersion(jar string) string {
	prefix := strings.TrimSuffix(jar, ".jar") + "-"
	links, err := filepath.Glob(prefix + "[0-9]*.jar")
	if err != nil || len(links) == 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(links[0], prefix), ".jar")
}
