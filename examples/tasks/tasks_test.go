// Package tasks tests the programs of the pages in docs/tasks.
package tasks

import (
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
	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/zktest"
)

const patience = time.Minute

// dir contains the built programs.
var dir string

func TestMain(m *testing.M) { os.Exit(buildAndTest(m)) }

func buildAndTest(m *testing.M) int {
	var err error
	if dir, err = os.MkdirTemp("", "tasks"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if out, err := exec.Command("go", "build", "-o", dir, "./...").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
		return 1
	}
	return m.Run()
}

// program is a running program.
type program struct {
	*testing.T
	cmd    *exec.Cmd
	output *testenv.Output // standard output and standard error
}

// start starts a program. server is the argument that names the server.
func start(t *testing.T, server, name string, args ...string) *program {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, name), append([]string{server}, args...)...)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = w, w
	require.NoError(t, cmd.Start())
	w.Close()
	p := &program{T: t, cmd: cmd, output: testenv.NewOutput(r)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the program has usually exited already
		_ = cmd.Wait()
		p.output.WaitForEnd(t, patience)
	})
	return p
}

// waitForLine waits for a line that contains text, and returns it.
func (p *program) waitForLine(text string) string {
	p.Helper()
	return p.output.WaitForLine(p, patience, text, func(line string) bool { return strings.Contains(line, text) })
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
	p.output.WaitForEnd(p, patience)
	require.NoError(p, p.cmd.Wait(), "%s", p.output.Tail())
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

// TestTasks_ProgramsDoWhatTheirPagesDescribe checks that each program of docs/tasks does what its page describes.
func TestTasks_ProgramsDoWhatTheirPagesDescribe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("processes cannot be interrupted")
	}
	for name, test := range map[string]func(t *testing.T, server string, conn *zk.Conn){
		"cron": func(t *testing.T, server string, _ *zk.Conn) {
			var exit *exec.ExitError
			never := start(t, server, "cron", "-lock=/jobs/one", "-check=1h")
			never.waitForLine("no run has ever begun")
			require.ErrorAs(t, never.cmd.Wait(), &exit)
			first := start(t, server, "cron", "-lock=/jobs/one", "echo", "the job runs")
			first.waitForLine("the job runs")
			first.requireSuccess()
			second := start(t, server, "cron", "-lock=/jobs/one", "echo", "the job runs")
			second.waitForLine("the job does not run here")
			second.requireSuccess()
			today := start(t, server, "cron", "-lock=/jobs/one", "-check=1h")
			today.waitForLine("the last run began at")
			today.requireSuccess()
			failed := start(t, server, "cron", "-lock=/jobs/failed", "false")
			require.ErrorAs(t, failed.cmd.Wait(), &exit)
			unfinished := start(t, server, "cron", "-lock=/jobs/failed", "-check=1h")
			unfinished.waitForLine("the run has not ended, or has failed")
			require.ErrorAs(t, unfinished.cmd.Wait(), &exit)
			late := start(t, server, "cron", "-lock=/jobs/one", "-check=1ns")
			late.waitForLine("no run has begun for")
			require.ErrorAs(t, late.cmd.Wait(), &exit)
			other := start(t, server, "cron", "-lock=/jobs/other", "echo", "the other job runs")
			other.waitForLine("the other job runs")
			other.requireSuccess()
			next := start(t, server, "cron", "-lock=/jobs/one", "-period=1ms", "echo", "the job runs")
			next.waitForLine("the job runs")
			next.requireSuccess()
			again := start(t, server, "cron", "-lock=/jobs/one", "-check=1h")
			again.waitForLine("the last run began at")
			again.requireSuccess()
		},
		"lock": func(t *testing.T, server string, _ *zk.Conn) {
			for i := range 2 {
				adding := start(t, server, "lock")
				adding.waitForLine(fmt.Sprintf("total %d, written with token", i+1))
				adding.requireSuccess()
			}
			demonstration := start(t, server, "lock", "-embedded")
			demonstration.waitForLine("ada writes without the lock: recipes: no longer held")
			demonstration.waitForLine("bob writes total 2")
			demonstration.requireSuccess()
		},
		"leader": func(t *testing.T, server string, conn *zk.Conn) {
			addr := freeAddr(t)
			first := start(t, server, "leader", "-name=first", "-listen="+addr)
			first.waitForLine("first leads")
			assert.Contains(t, get(t, "http://"+addr+"/leader", http.StatusOK), "leader with token")
			other := freeAddr(t)
			second := start(t, server, "leader", "-name=second", "-listen="+other)
			get(t, "http://"+other+"/healthz", http.StatusOK)
			assert.Equal(t, "not the leader\n", get(t, "http://"+other+"/leader", http.StatusServiceUnavailable))
			follower := start(t, server, "leader", "-name=follower", "-listen="+freeAddr(t))
			require.Eventually(t, func() bool {
				all, err := leaderelection.Candidates(t.Context(), conn, "/jobs/report")
				return assert.NoError(t, err) && len(all) == 3
			}, patience, 20*time.Millisecond)
			follower.interrupt()
			first.interrupt()
			second.waitForLine("second leads")
			second.interrupt()
		},
		"discovery": func(t *testing.T, server string, _ *zk.Conn) {
			shop := start(t, server, "discovery", "-serve=10.0.0.7:8080")
			shop.waitForLine("registered")
			client := start(t, server, "discovery")
			client.waitForLine("found 10.0.0.7:8080")
			client.requireSuccess()
			shop.interrupt()
			start(t, server, "discovery").waitForLine("no instance")
		},
		"workqueue": func(t *testing.T, server string, _ *zk.Conn) {
			start(t, server, "workqueue", "-put=rebuild index").requireSuccess()
			worker := start(t, server, "workqueue")
			worker.waitForLine("doing rebuild index")
			start(t, server, "workqueue", "-put=send report").requireSuccess()
			worker.waitForLine("doing send report")
			worker.interrupt()
			demonstration := start(t, server, "workqueue", "-embedded")
			demonstration.waitForLine("ada loses job-1: ")
			demonstration.waitForLine("dead letter: bad-job: cannot be done, after 2 attempts")
			demonstration.requireSuccess()
		},
		"shards": func(t *testing.T, server string, _ *zk.Conn) {
			first := start(t, server, "shards", "-name=worker-1")
			first.waitForLine("tenant-63: working, with token")
			second := start(t, server, "shards", "-name=worker-2")
			first.waitForLine("saved for worker-2: joined")
			second.waitForLine("working")
			second.interrupt()
			again := start(t, server, "shards", "-name=worker-2")
			again.waitForLine("working")
			again.interrupt()
			first.interrupt()
			demonstration := start(t, server, "shards", "-embedded")
			demonstration.requireSuccess()
			assert.Regexp(t, `five workers start
  [1-5]{64}  after [0-9.]+ s
  worker 1: 1[23] worker 2: 1[23] worker 3: 1[23] worker 4: 1[23] worker 5: 1[23]
the sessions of workers 2 and 4 end
  [135]{64}  after [0-9.]+ s
  worker 1: 2[12] worker 3: 2[12] worker 5: 2[12]
worker 6 starts
  [1356]{64}  after [0-9.]+ s
  worker 1: 16 worker 3: 16 worker 5: 16 worker 6: 16
tenant-07: worker [1356], with token [0-9]+`, demonstration.output.Text())
		},
		"config": func(t *testing.T, server string, conn *zk.Conn) {
			_, err := conn.Create("/config", nil, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			_, err = conn.Create("/config/limit", []byte("10"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			program := start(t, server, "config")
			program.waitForLine("starting with limit 10")
			_, err = conn.Set("/config/limit", []byte("20"), -1)
			require.NoError(t, err)
			program.waitForLine("/config/limit 20")
			program.interrupt()
			demonstration := start(t, server, "config", "-embedded")
			demonstration.waitForLine("starting with limit 10")
			demonstration.waitForLine("/config/limit 30")
			demonstration.interrupt()
		},
		"metrics": func(t *testing.T, server string, conn *zk.Conn) {
			addr := freeAddr(t)
			leader := start(t, server, "leader", "-listen="+addr)
			leader.waitForLine("leads with token")
			require.Eventually(t, func() bool {
				return strings.Contains(get(t, "http://"+addr+"/metrics", http.StatusOK), `leaderelection_leader{election="/jobs/report"} 1`)
			}, patience, 20*time.Millisecond)
			follower := start(t, server, "leader", "-listen="+freeAddr(t))
			require.Eventually(t, func() bool {
				all, err := leaderelection.Candidates(t.Context(), conn, "/jobs/report")
				return assert.NoError(t, err) && len(all) == 2
			}, patience, 20*time.Millisecond)
			follower.interrupt()
			assert.Empty(t, follower.output.Text(), "a follower that is stopped has not failed")
			require.NoError(t, leaderelection.DeleteElection(conn, "/jobs/report"))
			leader.waitForLine("ended: ")
			var exit *exec.ExitError
			require.ErrorAs(t, leader.cmd.Wait(), &exit, "the candidacy is over")
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := zktest.Start(t)
			conn, _, err := srv.Connect(10 * time.Second)
			require.NoError(t, err)
			test(t, "-zk="+srv.Addr(), conn)
		})
	}
}

// TestDeployment_PassesValidArguments checks that each program of docs/tasks accepts the arguments in the
// unit files and manifests that start it.
func TestDeployment_PassesValidArguments(t *testing.T) {
	for file, want := range map[string]int{
		"leader/deployment.yaml": 3, "leader/report.service": 3, "cron/invoices.service": 2, "cron/invoices-check.service": 3,
	} {
		begin := "ExecStart="
		if filepath.Ext(file) == ".yaml" {
			begin = "args:\n"
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		source, err := os.ReadFile(filepath.Join(filepath.Dir(file), "main.go"))
		require.NoError(t, err)
		_, args, found := bytes.Cut(text, []byte(begin))
		require.True(t, found, file)
		args, _, _ = bytes.Cut(args, []byte("\n"))
		flags := 0
		for arg := range strings.FieldsFuncSeq(string(args), func(r rune) bool { return strings.ContainsRune(` "[]`, r) }) {
			if name, _, isFlag := strings.Cut(strings.TrimPrefix(arg, "-"), "="); isFlag && strings.HasPrefix(arg, "-") {
				flags++
				assert.Regexp(t, fmt.Sprintf(`flag\.(String|Duration)\(%q`, name), string(source), file)
			}
		}
		assert.Equal(t, want, flags, file)
	}
}
