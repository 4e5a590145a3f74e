package difftest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const zookeeperJar = "/usr/share/java/zookeeper.jar"

// realServer starts an Apache ZooKeeper server, alone and empty, and returns its address.
func realServer(t *testing.T) string {
	t.Helper()
	java, err := exec.LookPath("java")
	if err == nil {
		_, err = os.Stat(zookeeperJar)
	}
	if err != nil {
		if os.Getenv("ZKTEST_REAL") == "required" {
			t.Fatalf("no Apache ZooKeeper to compare with: %v", err)
		}
		t.Skipf("NOT COMPARED with Apache ZooKeeper, there is none: %v", err)
	}
	dir := t.TempDir()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	cfg := filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=200\ndataDir=%s/data\nclientPortAddress=127.0.0.1\nclientPort=%s\n"+
		"admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\nmaxSessionTimeout=60000\n",
		dir, addr[strings.LastIndexByte(addr, ':')+1:])
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=300",
		"-cp", "/etc/zookeeper/conf:"+zookeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", cfg)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		log.Close()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("the end of the server's log:\n%s", b[max(0, len(b)-4000):])
		}
	})
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if strings.Contains(word(addr, "srvr"), "Mode: standalone") {
			return addr
		}
	}
	t.Fatal("Apache ZooKeeper does not come up")
	return ""
}

// word asks a four-letter word.
func word(addr, w string) string {
	nc, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(nc, w); err != nil {
		return ""
	}
	b, _ := io.ReadAll(nc)
	return string(b)
}
