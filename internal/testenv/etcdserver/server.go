// Package etcdserver runs real etcd servers, those of Debian's package etcd-server, as child
// processes of tests, which kill them, stop them and start them again.
package etcdserver

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv/certtest"
	"github.com/go-leaderelection/leaderelection/internal/testenv/loopback"
	"github.com/go-leaderelection/leaderelection/internal/testenv/serverdir"
)

// startLimit is how long a server may take to answer.
const startLimit = 30 * time.Second

// Config says what to start. The zero value is one server without TLS.
type Config struct {
	// Members is how many servers the cluster has; 0 stands for 1.
	Members int
	// TLS has the servers ask clients for certificates of this authority, and show theirs.
	TLS *certtest.Authority
	// Election is the servers' election timeout, 200 ms if it is zero; they send each other
	// heartbeats ten times as often. The least TTL of a lease is one and a half of it,
	// in whole seconds.
	Election time.Duration
}

// Cluster is what Start has started. Its methods belong to the test's goroutine.
type Cluster struct {
	t       testing.TB
	cfg     Config
	members []*member
}

// member is one server, which may be down.
type member struct {
	name         string
	dir          string
	client, peer *loopback.Port
	logs         *os.File
	process      *process // nil while it is down
}

// Start starts a cluster with an empty store, and waits until it answers. It ends with the
// test. Without etcd on the PATH the test is skipped, or fails if ZKTEST_REAL=required.
func Start(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		if os.Getenv("ZKTEST_REAL") == "required" {
			t.Fatalf("no etcd to test with: %v", err)
		}
		t.Skipf("NOT TRIED with etcd: %v", err)
	}
	if cfg.Members == 0 {
		cfg.Members = 1
	}
	if cfg.Election == 0 {
		cfg.Election = 200 * time.Millisecond
	}
	c := &Cluster{t: t, cfg: cfg}
	dir, err := serverdir.Make("etcdserver")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.close()
		_ = os.RemoveAll(dir)
	})
	for i := range cfg.Members {
		m := &member{name: fmt.Sprint("m", i)}
		m.dir = filepath.Join(dir, m.name)
		var err error
		if m.client, err = loopback.Reserve(); err != nil {
			t.Fatal(err)
		}
		c.members = append(c.members, m)
		if m.peer, err = loopback.Reserve(); err != nil {
			t.Fatal(err)
		}
		if m.logs, err = os.Create(filepath.Join(dir, m.name+".log")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.members {
		c.launch(i)
	}
	c.ready()
	return c
}

// Addr is the host:port for clients of a server.
func (c *Cluster) Addr(i int) string { return fmt.Sprint("127.0.0.1:", c.members[i].client.Number) }

// URL is the same for etcd's tools.
func (c *Cluster) URL(i int) string { return c.scheme() + "://" + c.Addr(i) }

// Endpoints are the addresses of all servers.
func (c *Cluster) Endpoints() (all []string) {
	for i := range c.members {
		all = append(all, c.URL(i))
	}
	return all
}

func (c *Cluster) scheme() string {
	if c.cfg.TLS != nil {
		return "https"
	}
	return "http"
}

// TLS is the configuration of a client with a certificate, or nil without TLS.
func (c *Cluster) TLS() *tls.Config {
	if c.cfg.TLS == nil {
		return nil
	}
	return c.cfg.TLS.Config("127.0.0.1")
}

// Call calls a method of etcd's API, such as "kv/put", on a server, in JSON.
func (c *Cluster) Call(i int, method string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	answer, err := c.http().Post(c.URL(i)+"/v3/"+method, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s on %s: %s", method, c.URL(i), answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(reply)
}

func (c *Cluster) http() *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.TLS()}, Timeout: time.Second,
	}
}

// Kill ends a server as kill -9 does, and waits for its end.
func (c *Cluster) Kill(i int) {
	c.t.Helper()
	m := c.members[i]
	if m.process == nil {
		c.t.Fatalf("%s does not run", m.name)
	}
	m.process.kill()
	m.process = nil
}

// Restart starts a server that was killed, with its data, and waits until it answers.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	c.launch(i)
	c.ready()
}

// Pause stops a server's process, which keeps its connections open.
func (c *Cluster) Pause(i int) { c.signal(i, freeze) }

// Resume lets it go on.
func (c *Cluster) Resume(i int) { c.signal(i, thaw) }

func (c *Cluster) signal(i int, f func(*os.Process) error) {
	c.t.Helper()
	if err := f(c.members[i].process.cmd.Process); err != nil {
		c.t.Fatal(err)
	}
}

// Leader is the number of the server that leads the others, as they say themselves.
func (c *Cluster) Leader() int {
	c.t.Helper()
	for end := time.Now().Add(startLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for i := range c.members {
			var status struct {
				Header struct {
					Member string `json:"member_id"`
				}
				Leader string
			}
			err := c.Call(i, "maintenance/status", struct{}{}, &status)
			if err == nil && status.Leader == status.Header.Member {
				return i
			}
		}
	}
	c.t.Fatal("no server leads")
	return -1
}

func (c *Cluster) launch(i int) {
	c.t.Helper()
	m := c.members[i]
	if m.process != nil {
		c.t.Fatalf("%s runs already", m.name)
	}
	p, err := startProcess(exec.Command("etcd", c.args(m)...), m.logs)
	if err != nil {
		c.t.Fatal(err)
	}
	m.process = p
}

func (c *Cluster) args(m *member) []string {
	peer := fmt.Sprint("http://127.0.0.1:", m.peer.Number)
	client := fmt.Sprintf("%s://127.0.0.1:%d", c.scheme(), m.client.Number)
	var all []string
	for _, other := range c.members {
		all = append(all, fmt.Sprintf("%s=http://127.0.0.1:%d", other.name, other.peer.Number))
	}
	args := []string{
		"--name", m.name, "--data-dir", m.dir,
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "new",
		"--heartbeat-interval", fmt.Sprint(c.cfg.Election.Milliseconds() / 10),
		"--election-timeout", fmt.Sprint(c.cfg.Election.Milliseconds()),
		"--logger", "zap", "--log-level", "warn",
	}
	if a := c.cfg.TLS; a != nil {
		ca, cert, key := a.Files("127.0.0.1")
		args = append(args, "--cert-file", cert, "--key-file", key, "--trusted-ca-file", ca, "--client-cert-auth")
	}
	return args
}

// ready waits until all servers that run know a leader.
func (c *Cluster) ready() {
	c.t.Helper()
	client := c.http()
	end := time.Now().Add(startLimit)
	for i, m := range c.members {
		for m.process != nil && !healthy(client, c.URL(i)) {
			switch {
			case m.process.ended():
				c.t.Fatalf("%s has ended:\n%s", m.name, m.log())
			case time.Now().After(end):
				c.t.Fatalf("%s does not answer:\n%s", m.name, m.log())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// healthy asks by HTTP: a gRPC client that is refused waits for a second.
func healthy(client *http.Client, url string) bool {
	answer, err := client.Get(url + "/health")
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// log is the end of what the server has said.
func (m *member) log() string {
	text, err := os.ReadFile(m.logs.Name())
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-3000):]))
}

func (c *Cluster) close() {
	for _, m := range c.members {
		if m.process != nil {
			m.process.kill()
		}
		if m.logs != nil {
			if c.t.Failed() {
				c.t.Logf("the end of the log of %s:\n%s", m.name, m.log())
			}
			m.logs.Close()
		}
		for _, p := range []*loopback.Port{m.client, m.peer} {
			if p != nil {
				p.Release()
			}
		}
	}
}

// process is one run of a server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and was waited for
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return
	}
	<-p.done
}
