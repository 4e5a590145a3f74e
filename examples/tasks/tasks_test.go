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

	"github.com/go-leaderelection/leaderelection/zktest"
)

const patience = time.Minute

// programs is a server, and the programs that run on it.
type programs struct {
	*testing.T
	dir  string
	addr string
	conn *zk.Conn
}

// program is a running program.
type program struct {
	*testing.T
	cmd   *exec.Cmd
	lines chan string
}

// start starts a program. Its output is on standard output and standard error.
func (p *programs) start(name string, args ...string) *program {
	p.Helper()
	cmd := exec.Command(filepath.Join(p.dir, name), append([]string{"-zk", p.addr}, args...)...)
	r, w, err := os.Pipe()
	require.NoError(p, err)
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(p, cmd.Start())
	w.Close()
	running := &program{p.T, cmd, make(chan string, 1000)}
	go func() {
		defer r.Close()
		defer close(running.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			running.lines <- s.Text()
		}
	}()
	p.Cleanup(func() {
		_ = cmd.Process.Kill() // it has usually ended
		_ = cmd.Wait()
	})
	return running
}

// prints waits for a line that contains text, and returns it.
func (p *program) prints(text string) string {
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
			require.True(p, open, "%s has ended without %q: %s", p.cmd.Path, text, before)
		case <-limit:
			require.Fail(p, "not printed: "+text, "%s: %s", p.cmd.Path, before)
		}
	}
}

// stop interrupts the program, which must succeed.
func (p *program) stop() {
	p.Helper()
	require.NoError(p, p.cmd.Process.Signal(os.Interrupt))
	p.succeeds()
}

func (p *program) succeeds() {
	p.Helper()
	for range p.lines { // until the program ends
	}
	require.NoError(p, p.cmd.Wait())
}

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

func TestTasks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("processes cannot be interrupted")
	}
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir, "./...").CombinedOutput()
	require.NoError(t, err, "%s", out)

	for name, test := range map[string]func(*programs){
		"job": func(p *programs) {
			first := p.start("job", "-every=1ms")
			first.prints("leader with token")
			first.prints("job runs")
			first.prints("job runs")
			second := p.start("job")
			first.stop()
			second.prints("job runs")
			second.stop()
		},
		"lock": func(p *programs) {
			for i := range 2 {
				adding := p.start("lock")
				adding.prints(fmt.Sprintf("total %d, written with token", i+1))
				adding.succeeds()
			}
		},
		"leader": func(p *programs) {
			addr := freeAddr(p.T)
			first := p.start("leader", "-name=first", "-listen="+addr)
			first.prints("first leads")
			assert.Contains(p, get(p.T, "http://"+addr+"/leader", http.StatusOK), "leader with token")
			other := freeAddr(p.T)
			second := p.start("leader", "-name=second", "-listen="+other)
			get(p.T, "http://"+other+"/healthz", http.StatusOK)
			assert.Equal(p, "not the leader\n", get(p.T, "http://"+other+"/leader", http.StatusServiceUnavailable))
			first.stop()
			second.prints("second leads")
			second.stop()
		},
		"discovery": func(p *programs) {
			shop := p.start("discovery", "-serve=10.0.0.7:8080")
			shop.prints("registered")
			client := p.start("discovery")
			client.prints("found 10.0.0.7:8080")
			client.succeeds()
			shop.stop()
			p.start("discovery").prints("no instance")
		},
		"workqueue": func(p *programs) {
			p.start("workqueue", "-put=rebuild index").succeeds()
			worker := p.start("workqueue")
			worker.prints("doing rebuild index")
			p.start("workqueue", "-put=send report").succeeds()
			worker.prints("doing send report")
			worker.stop()
		},
		"config": func(p *programs) {
			_, err := p.conn.Create("/config", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(p, err)
			_, err = p.conn.Create("/config/limit", []byte("10"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(p, err)
			program := p.start("config")
			program.prints("starting with limit 10")
			_, err = p.conn.Set("/config/limit", []byte("20"), -1)
			require.NoError(p, err)
			program.prints("/config/limit 20")
			program.stop()
		},
		"observe": func(p *programs) {
			addr := freeAddr(p.T)
			candidate := p.start("leader", "-name=first", "-listen="+addr, "-addr="+addr)
			candidate.prints("first leads")
			observer := p.start("observe", "-limit=1ms")
			assert.Contains(p, observer.prints("first leads with token"), " at "+addr)
			candidate.stop()
			observer.prints("no leader")
			observer.prints("WARNING: no leader for 1ms")
			observer.stop()
		},
		"metrics": func(p *programs) {
			addr := freeAddr(p.T)
			leader := p.start("metrics", "-listen="+addr)
			leader.prints("leader with token")
			require.Eventually(p, func() bool {
				return strings.Contains(get(p.T, "http://"+addr+"/metrics", http.StatusOK), `leaderelection_leader{election="/jobs/report"} 1`)
			}, patience, 20*time.Millisecond)
			leader.stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := zktest.Start(t)
			conn, _, err := srv.Connect(10 * time.Second)
			require.NoError(t, err)
			test(&programs{t, dir, srv.Addr(), conn})
		})
	}
}

// TestDeployment shows that the programs accept the arguments in the files for supervisors.
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
