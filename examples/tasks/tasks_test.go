// Package tasks tests the programs of the pages in docs/tasks.
package tasks

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const patience = time.Minute

// harness runs programs on an embedded server.
type harness struct {
	*testing.T
	dir    string // of the built programs
	server string // the argument that names the server
	conn   *zk.Conn
}

// program is a running program.
type program struct {
	*testing.T
	cmd   *exec.Cmd
	lines chan string // standard output and standard error

	output []string // the lines that requireSuccess has read
}

func (h *harness) start(name string, args ...string) *program {
	h.Helper()
	cmd := exec.Command(filepath.Join(h.dir, name), append([]string{h.server}, args...)...)
	r, w, err := os.Pipe()
	require.NoError(h, err)
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(h, cmd.Start())
	w.Close()
	running := &program{T: h.T, cmd: cmd, lines: make(chan string, 1000)}
	go func() {
		defer r.Close()
		defer close(running.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			running.lines <- s.Text()
		}
	}()
	h.Cleanup(func() {
		_ = cmd.Process.Kill() // it has usually exited
		_ = cmd.Wait()
	})
	return running
}

// waitForLine waits for a line that contains text, and returns it.
func (p *program) waitForLine(text string) string {
	p.Helper()
	limit := time.After(patience)
	var before []string
	for {
		select {
		case line, open := <-p.lines:
			if strings.Contains(line, text) {
				return line
			}
			before = append(before, line)
			require.True(p, open, "%s has exited without %q: %s", p.cmd.Path, text, before)
		case <-limit:
			require.Fail(p, "not printed: "+text, "%s: %s", p.cmd.Path, before)
		}
	}
}

// interrupt sends INT to the program, which must exit with code 0.
func (p *program) interrupt() {
	p.Helper()
	require.NoError(p, p.cmd.Process.Signal(os.Interrupt))
	p.requireSuccess()
}

// requireSuccess waits until the program has exited with code 0.
func (p *program) requireSuccess() {
	p.Helper()
	for line := range p.lines { // until the program exits
		p.output = append(p.output, line)
	}
	require.NoError(p, p.cmd.Wait())
}

// freeAddr returns an address on which a program can listen.
func freeAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// get waits until a GET of the URL returns the status, and returns the body.
func get(t *testing.T, url string, status int) string {
	t.Helper()
	var body []byte
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		response, err := http.Get(url)
		if !assert.NoError(c, err) {
			return
		}
		defer response.Body.Close()
		body, err = io.ReadAll(response.Body)
		assert.NoError(c, err)
		assert.Equal(c, status, response.StatusCode)
	}, patience, 20*time.Millisecond)
	return string(body)
}

// build builds programs and returns their directory.
func build(t *testing.T, packages string) string {
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir, packages).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// TestTasks fails if a program of docs/tasks does not do what its page describes.
func TestTasks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("processes cannot be interrupted")
	}
	dir := build(t, "./...")
	for name, test := range map[string]func(*harness){
		"job": func(h *harness) {
			first := h.start("job", "-every=1ms")
			first.waitForLine("leader with token")
			first.waitForLine("job runs")
			first.waitForLine("job runs")
			second := h.start("job")
			first.interrupt()
			second.waitForLine("job runs")
			second.interrupt()
		},
		"lock": func(h *harness) {
			for i := range 2 {
				adding := h.start("lock")
				adding.waitForLine(fmt.Sprintf("total %d, written with token", i+1))
				adding.requireSuccess()
			}
			demonstration := h.start("lock", "-embedded")
			demonstration.waitForLine("ada writes without the lock: recipes: no longer held")
			demonstration.waitForLine("bob writes total 2")
			demonstration.requireSuccess()
		},
		"leader": func(h *harness) {
			addr := freeAddr(h.T)
			first := h.start("leader", "-name=first", "-listen="+addr)
			first.waitForLine("first leads")
			assert.Contains(h, get(h.T, "http://"+addr+"/leader", http.StatusOK), "leader with token")
			other := freeAddr(h.T)
			second := h.start("leader", "-name=second", "-listen="+other)
			get(h.T, "http://"+other+"/healthz", http.StatusOK)
			assert.Equal(h, "not the leader\n", get(h.T, "http://"+other+"/leader", http.StatusServiceUnavailable))
			follower := h.start("leader", "-name=follower", "-listen="+freeAddr(h.T))
			require.Eventually(h, func() bool {
				all, err := leaderelection.Candidates(t.Context(), h.conn, "/jobs/report")
				return assert.NoError(h, err) && len(all) == 3
			}, patience, 20*time.Millisecond)
			follower.interrupt()
			first.interrupt()
			second.waitForLine("second leads")
			second.interrupt()
		},
		"discovery": func(h *harness) {
			shop := h.start("discovery", "-serve=10.0.0.7:8080")
			shop.waitForLine("registered")
			client := h.start("discovery")
			client.waitForLine("found 10.0.0.7:8080")
			client.requireSuccess()
			shop.interrupt()
			h.start("discovery").waitForLine("no instance")
		},
		"workqueue": func(h *harness) {
			h.start("workqueue", "-put=rebuild index").requireSuccess()
			worker := h.start("workqueue")
			worker.waitForLine("doing rebuild index")
			h.start("workqueue", "-put=send report").requireSuccess()
			worker.waitForLine("doing send report")
			worker.interrupt()
			demonstration := h.start("workqueue", "-embedded")
			demonstration.waitForLine("ada loses job-1: ")
			demonstration.waitForLine("dead letter: bad-job: cannot be done, after 2 attempts")
			demonstration.requireSuccess()
		},
		"shards": func(h *harness) {
			first := h.start("shards", "-name=worker-1")
			first.waitForLine("tenant-63: working, with token")
			second := h.start("shards", "-name=worker-2")
			first.waitForLine("saved for worker-2: joined")
			second.waitForLine("working")
			second.interrupt()
			again := h.start("shards", "-name=worker-2")
			again.waitForLine("working")
			again.interrupt()
			first.interrupt()
		},
		"config": func(h *harness) {
			_, err := h.conn.Create("/config", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(h, err)
			_, err = h.conn.Create("/config/limit", []byte("10"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(h, err)
			program := h.start("config")
			program.waitForLine("starting with limit 10")
			_, err = h.conn.Set("/config/limit", []byte("20"), -1)
			require.NoError(h, err)
			program.waitForLine("/config/limit 20")
			program.interrupt()
			demonstration := h.start("config", "-embedded")
			demonstration.waitForLine("starting with limit 10")
			demonstration.waitForLine("/config/limit 30")
			demonstration.interrupt()
		},
		"observe": func(h *harness) {
			addr := freeAddr(h.T)
			candidate := h.start("leader", "-name=first", "-listen="+addr, "-addr="+addr)
			candidate.waitForLine("first leads")
			observer := h.start("observe", "-limit=1ms")
			assert.Contains(h, observer.waitForLine("first leads with token"), " at "+addr)
			candidate.interrupt()
			observer.waitForLine("no leader")
			observer.waitForLine("WARNING: no leader for 1ms")
			observer.interrupt()
		},
		"metrics": func(h *harness) {
			addr := freeAddr(h.T)
			leader := h.start("metrics", "-listen="+addr)
			leader.waitForLine("leader with token")
			require.Eventually(h, func() bool {
				return strings.Contains(get(h.T, "http://"+addr+"/metrics", http.StatusOK), `leaderelection_leader{election="/jobs/report"} 1`)
			}, patience, 20*time.Millisecond)
			follower := h.start("metrics", "-listen="+freeAddr(h.T))
			require.Eventually(h, func() bool {
				all, err := leaderelection.Candidates(t.Context(), h.conn, "/jobs/report")
				return assert.NoError(h, err) && len(all) == 2
			}, patience, 20*time.Millisecond)
			follower.interrupt()
			assert.Empty(h, follower.output, "a follower that is stopped has not failed")
			require.NoError(h, leaderelection.DeleteElection(h.conn, "/jobs/report"))
			leader.waitForLine("ended: ")
			var exit *exec.ExitError
			require.ErrorAs(h, leader.cmd.Wait(), &exit, "the candidacy is over")
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := zktest.Start(t)
			conn, _, err := srv.Connect(10 * time.Second)
			require.NoError(t, err)
			test(&harness{t, dir, "-zk=" + srv.Addr(), conn})
		})
	}
}

// TestDeployment fails if a program does not accept the arguments in a file for a supervisor.
func TestDeployment(t *testing.T) {
	for file, begin := range map[string]string{"leader/deployment.yaml": "args:\n", "leader/report.service": "ExecStart="} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		source, err := os.ReadFile("leader/main.go")
		require.NoError(t, err)
		_, args, found := bytes.Cut(text, []byte(begin))
		require.True(t, found, file)
		args, _, _ = bytes.Cut(args, []byte("\n"))
		flags := 0
		for arg := range strings.FieldsFuncSeq(string(args), func(r rune) bool { return strings.ContainsRune(` "[]`, r) }) {
			if name, _, isFlag := strings.Cut(strings.TrimPrefix(arg, "-"), "="); isFlag && strings.HasPrefix(arg, "-") {
				flags++
				assert.Contains(t, string(source), fmt.Sprintf("flag.String(%q", name), file)
			}
		}
		assert.Equal(t, 3, flags, file)
	}
}
