//go:build linux

package elector

import (
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

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/internal/testenv/zkproxy"
)

// elector is a process of the built binary, which reaches the servers through a separate network.
type elector struct {
	t       testing.TB
	cmd     *exec.Cmd
	network zkproxy.Network
	logFile string
	read    int // how many bytes of the log waitLog has searched
}

// program contains the arguments that make an elector run the program of the lock file. A shell starts that program
// as its child, because the kernel would kill a child of an elector, but not a grandchild, together with the
// watchdog.
var program = []string{"--", "/bin/sh", "-c", `"$SELF" & wait`}

// stubborn is an argument of start that makes the program ignore SIGTERM.
const stubborn = stubbornVariable + "=yes"

// start starts an elector that runs a program. Arguments of the form NAME=value are environment variables.
func (el *election) start(binary, id string, args ...string) *elector {
	el.t.Helper()
	p := el.newElector(binary, id, args...)
	p.start()
	return p
}

// newElector prepares an elector with the arguments of election.start, without starting it.
func (el *election) newElector(binary, id string, args ...string) *elector {
	el.t.Helper()
	p := &elector{t: el.t, logFile: filepath.Join(el.t.TempDir(), id), network: zkproxy.NewNetwork(el.t, servers.Addrs()...)}
	self, err := os.Executable()
	require.NoError(el.t, err)
	env := append(os.Environ(), "GORACE=atexit_sleep_ms=0", "SELF="+self, lockFileVariable+"="+el.lockFile)
	commandLine := []string{
		"run", "--backend", "zookeeper", "--zookeeper-servers", strings.Join(p.network.Addrs(), ","), "--election", el.path,
		"--instance-id", id, "--session-timeout", sessionTimeout.String(),
	}
	for i, arg := range args {
		if arg == "--" {
			commandLine = append(commandLine, args[i:]...)
			break
		}
		if name, _, ok := strings.Cut(arg, "="); ok && name == strings.ToUpper(name) {
			env = append(env, arg)
			continue
		}
		commandLine = append(commandLine, arg)
	}
	p.cmd = exec.Command(binary, commandLine...)
	p.cmd.Env = env
	return p
}

func (p *elector) start() {
	p.t.Helper()
	log, err := os.Create(p.logFile)
	require.NoError(p.t, err)
	defer log.Close()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	require.NoError(p.t, p.cmd.Start())
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill() // the process has usually ended already
		_ = p.cmd.Wait()
		if p.t.Failed() {
			p.t.Logf("%s\n%s", strings.Join(p.cmd.Args, " "), p.readLog())
		}
		require.NotContains(p.t, p.readLog(), "DATA RACE")
	})
}

func (p *elector) readLog() string {
	text, err := os.ReadFile(p.logFile)
	require.NoError(p.t, err)
	return string(text)
}

// waitLog waits until the log contains text after the lines that earlier calls have found. It returns the line from
// text on. The log includes the output of commands.
func (p *elector) waitLog(text string) (line string) {
	p.t.Helper()
	testenv.Eventually(p.t, func() bool {
		all := p.readLog()
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
	}, "the log does not contain "+text)
	return line
}

func (p *elector) sendSignal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// waitExit waits until the process has ended, and returns its exit code.
func (p *elector) waitExit() int {
	p.t.Helper()
	killer := time.AfterFunc(testenv.WaitLimit, func() { _ = p.cmd.Process.Kill() })
	_ = p.cmd.Wait()
	require.True(p.t, killer.Stop(), "the process does not end")
	return p.cmd.ProcessState.ExitCode()
}

// terminate sends SIGTERM and requires that the process ends successfully.
func (p *elector) terminate() {
	p.t.Helper()
	p.sendSignal(syscall.SIGTERM)
	require.Zero(p.t, p.waitExit())
}

// getPage returns a function that requests a page from an elector with --listen 127.0.0.1:0.
func (p *elector) getPage(path string) func() (code int, text string) {
	p.t.Helper()
	_, address, ok := strings.Cut(p.waitLog("msg=listening"), "address=")
	require.True(p.t, ok)
	client := &http.Client{Timeout: testenv.WaitLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	return func() (int, string) {
		p.t.Helper()
		resp, err := client.Get(fmt.Sprintf("http://%s%s", address, path))
		require.NoError(p.t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(p.t, err)
		return resp.StatusCode, string(text)
	}
}

func statusCode(code int, _ string) int { return code }
