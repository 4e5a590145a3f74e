//go:build linux

package elector

// Electors as processes, each on a network of its own.

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// election is one on the ensemble.
type election struct {
	testing.TB
	*lockFile
	path string
}

func newElection(t testing.TB) *election {
	return &election{t, newLockFile(t), "/" + strings.ReplaceAll(t.Name(), "/", "-") + "-" + rand.Text()[:8]}
}

// elector is a process of the built binary.
type elector struct {
	testing.TB
	cmd     *exec.Cmd
	network []*zkproxy.Proxy
	log     string // a file
	read    int    // how much of it has been looked at
}

// program are the arguments that have an elector run the lock file's program: not itself
// but by a shell, since the kernel would end a child with its guard, and not a grandchild.
var program = []string{"--", "/bin/sh", "-c", `"$SELF" & wait`}

// stubborn is a variable for a program that goes on after TERM.
const stubborn = stubbornVariable + "=yes"

// run starts an elector. Arguments of the form NAME=value are for the environment.
func (e *election) run(binary, id string, args ...string) *elector {
	e.TB.Helper()
	p := e.prepare(binary, id, args...)
	p.start()
	return p
}

// prepare is run without the start, for those who want to cut the network first.
func (e *election) prepare(binary, id string, args ...string) *elector {
	e.TB.Helper()
	var addrs []string
	p := &elector{TB: e.TB, log: filepath.Join(e.TempDir(), id)}
	for _, addr := range servers.Addrs() {
		proxy, err := zkproxy.New(addr)
		require.NoError(e.TB, err)
		e.Cleanup(proxy.Close)
		p.network = append(p.network, proxy)
		addrs = append(addrs, proxy.Addr())
	}
	self, err := os.Executable()
	require.NoError(e.TB, err)
	env := append(os.Environ(), "GORACE=atexit_sleep_ms=0", "SELF="+self, lockFileVariable+"="+e.name)
	line := []string{
		"run", "--backend", "zookeeper", "--zookeeper-servers", strings.Join(addrs, ","), "--election", e.path,
		"--instance-id", id, "--session-timeout", sessionTimeout.String(),
	}
	for i, arg := range args {
		if arg == "--" {
			line = append(line, args[i:]...)
			break
		}
		if name, _, ok := strings.Cut(arg, "="); ok && name == strings.ToUpper(name) {
			env = append(env, arg)
			continue
		}
		line = append(line, arg)
	}
	p.cmd = exec.Command(binary, line...)
	p.cmd.Env = env
	return p
}

func (p *elector) start() {
	p.Helper()
	log, err := os.Create(p.log)
	require.NoError(p, err)
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	require.NoError(p, p.cmd.Start())
	p.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill() // it has usually ended
		_ = p.cmd.Wait()
		if p.Failed() {
			p.Logf("%s\n%s", strings.Join(p.cmd.Args, " "), p.text())
		}
		require.NotContains(p, p.text(), "DATA RACE")
	})
}

func (p *elector) text() string {
	text, err := os.ReadFile(p.log)
	require.NoError(p, err)
	return string(text)
}

// says waits until the log, or what the commands have written, goes on with a line that
// contains text, and returns that line.
func (p *elector) says(text string) (line string) {
	p.Helper()
	require.Eventually(p, func() bool {
		all := p.text()
		at := strings.Index(all[p.read:], text)
		if at < 0 {
			return false
		}
		line = all[p.read+at:]
		end := strings.Index(line, "\n")
		if end < 0 {
			return false
		}
		line = line[:end]
		p.read += at + end
		return true
	}, patience, 5*time.Millisecond, "never said: %s", text)
	return line
}

func (p *elector) signal(sig syscall.Signal) {
	p.Helper()
	require.NoError(p, p.cmd.Process.Signal(sig))
}

// exit waits for the process's end, and returns its exit code.
func (p *elector) exit() int {
	p.Helper()
	late := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	require.True(p, late.Stop(), "the process does not end")
	return p.cmd.ProcessState.ExitCode()
}

// hands has a leader hand over in good order.
func (p *elector) hands() {
	p.Helper()
	p.signal(syscall.SIGTERM)
	require.Zero(p, p.exit())
}

// cut makes a black hole of the network, or ends that. What was held back is lost.
func (p *elector) cut(cut bool) {
	for _, proxy := range p.network {
		if cut {
			proxy.Blackhole(zkproxy.Both)
		} else {
			proxy.DropConnections()
			proxy.Unblackhole()
		}
	}
}

// refuse has connections refused, or not.
func (p *elector) refuse(refuse bool) {
	for _, proxy := range p.network {
		proxy.Refuse(refuse)
		proxy.DropConnections()
	}
}

// page is a function that asks for a page of --listen 127.0.0.1:0.
func (p *elector) page(path string) func() (code int, text string) {
	p.Helper()
	_, address, ok := strings.Cut(p.says("msg=listening"), "address=")
	require.True(p, ok)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	return func() (int, string) {
		p.Helper()
		resp, err := client.Get(fmt.Sprintf("http://%s%s", address, path))
		require.NoError(p, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(p, err)
		return resp.StatusCode, string(text)
	}
}

func code(code int, _ string) int { return code }
