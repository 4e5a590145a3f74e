package dbserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// stepLimit is how long a server of any kind may take to start or to stop on a busy machine. It is in this file,
// because the others are compiled on Unix only.
const stepLimit = 3 * time.Minute

// EtcdConfig configures [StartEtcd]. The zero value is one server without TLS.
type EtcdConfig struct {
	// Members is the number of servers. The default is 1.
	Members int
	// TLS, if it is not nil, issues the certificates of the servers. The servers require that clients present a
	// certificate of this authority.
	TLS *testenv.Authority
	// Election is the election timeout of the servers, which send ten heartbeats in this time. The shortest TTL of
	// a lease is one and a half times as long, rounded to whole seconds. The default is 200 ms.
	Election time.Duration
}

// EtcdCluster is a set of etcd servers, numbered from 0. Only the goroutine of the test may call its
// methods.
type EtcdCluster struct {
	t       testing.TB
	cfg     EtcdConfig
	members []*etcdMember
}

// etcdMember is one server of the cluster.
type etcdMember struct {
	name         string
	dir          string
	client, peer *testenv.Port
	logs         *os.File
	process      *testenv.Process // nil while the server is not running
}

// StartEtcd starts a cluster with an empty store, and waits until the cluster answers. StartEtcd stops the cluster
// when the test ends. If etcd is not on the PATH, StartEtcd skips the test, or fails it as [testenv.SkipMissing]
// does.
func StartEtcd(t testing.TB, cfg EtcdConfig) *EtcdCluster {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		testenv.SkipMissing(t, "etcd", err)
	}
	if cfg.Members == 0 {
		cfg.Members = 1
	}
	if cfg.Election == 0 {
		cfg.Election = 200 * time.Millisecond
	}
	c := &EtcdCluster{t: t, cfg: cfg}
	dir, err := testenv.MakeDir("dbserver")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.close()
		_ = os.RemoveAll(dir)
	})
	for i := range cfg.Members {
		m := &etcdMember{name: fmt.Sprint("m", i)}
		m.dir = filepath.Join(dir, m.name)
		var err error
		if m.client, err = testenv.ReservePort(); err != nil {
			t.Fatal(err)
		}
		c.members = append(c.members, m)
		if m.peer, err = testenv.ReservePort(); err != nil {
			t.Fatal(err)
		}
		if m.logs, err = os.Create(filepath.Join(dir, m.name+".log")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.members {
		c.startServer(i)
	}
	c.waitReady()
	return c
}

// Addr returns the host:port of server i for clients.
func (c *EtcdCluster) Addr(i int) string { return fmt.Sprint("127.0.0.1:", c.members[i].client.Number) }

// URL returns the URL at which clients reach server i.
func (c *EtcdCluster) URL(i int) string { return c.urlScheme() + "://" + c.Addr(i) }

// Endpoints returns the URLs of all servers.
func (c *EtcdCluster) Endpoints() (all []string) {
	for i := range c.members {
		all = append(all, c.URL(i))
	}
	return all
}

func (c *EtcdCluster) urlScheme() string {
	if c.cfg.TLS != nil {
		return "https"
	}
	return "http"
}

// TLS returns the configuration of a client with a certificate, or nil if the cluster does not use TLS.
func (c *EtcdCluster) TLS() *tls.Config {
	if c.cfg.TLS == nil {
		return nil
	}
	return c.cfg.TLS.Config("127.0.0.1")
}

// Call calls a method of etcd's JSON API, such as "kv/put", on server i.
func (c *EtcdCluster) Call(i int, method string, request, reply any) error {
	return c.call(i, stepLimit, method, request, reply)
}

// call does what Call does, with a time limit.
func (c *EtcdCluster) call(i int, limit time.Duration, method string, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	response, err := c.httpClient(limit).Post(c.URL(i)+"/v3/"+method, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("call %s of %s: %s", method, c.URL(i), response.Status)
	}
	return json.NewDecoder(response.Body).Decode(reply)
}

func (c *EtcdCluster) httpClient(limit time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.TLS()}, Timeout: limit,
	}
}

// EtcdPassword is the password of the users that EnableAuth creates.
const EtcdPassword = "secret"

// EnableAuth enables authentication. It creates the users root, which has all permissions, and user, which has the
// given permission, READ or READWRITE, for the keys from start up to, but not including, end.
func (c *EtcdCluster) EnableAuth(permission, start, end string) {
	c.t.Helper()
	keys := map[string]any{"permType": permission, "key": []byte(start), "range_end": []byte(end)}
	for _, step := range []struct {
		method  string
		request map[string]any
	}{
		{"user/add", map[string]any{"name": "root", "password": EtcdPassword}},
		{"user/grant", map[string]any{"user": "root", "role": "root"}},
		{"user/add", map[string]any{"name": "user", "password": EtcdPassword}},
		{"role/add", map[string]any{"name": "role"}},
		{"role/grant", map[string]any{"name": "role", "perm": keys}},
		{"user/grant", map[string]any{"user": "user", "role": "role"}},
		{"enable", nil},
	} {
		c.mustCall("auth/"+step.method, step.request, nil)
	}
}

// SetFull makes the servers reject writes as if their database had reached its quota, or accept writes again.
// SetFull needs no credentials, even after EnableAuth.
func (c *EtcdCluster) SetFull(full bool) {
	c.t.Helper()
	var status struct {
		Header struct {
			Member string `json:"member_id"`
		}
	}
	c.mustCall("maintenance/status", nil, &status)
	action := "DEACTIVATE"
	if full {
		action = "ACTIVATE"
	}
	c.mustCall("maintenance/alarm", map[string]any{"action": action, "memberID": status.Header.Member, "alarm": "NOSPACE"}, nil)
}

// mustCall calls a method on server 0, and fails the test if the method returns an error. reply may be nil.
func (c *EtcdCluster) mustCall(method string, request map[string]any, reply any) {
	c.t.Helper()
	if reply == nil {
		reply = &struct{}{}
	}
	if request == nil {
		request = map[string]any{}
	}
	if err := c.Call(0, method, request, reply); err != nil {
		c.t.Fatal(err)
	}
}

// Kill kills server i and waits until it has ended.
func (c *EtcdCluster) Kill(i int) {
	c.t.Helper()
	m := c.members[i]
	if m.process == nil {
		c.t.Fatalf("%s is not running", m.name)
	}
	c.killMember(m)
}

func (c *EtcdCluster) killMember(m *etcdMember) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	if err := m.process.Kill(ctx); err != nil {
		c.t.Errorf("kill %s: %v", m.name, err)
	}
	m.process = nil
}

// Restart starts server i after Kill, with its data, and waits until it answers.
func (c *EtcdCluster) Restart(i int) {
	c.t.Helper()
	c.startServer(i)
	c.waitReady()
}

// Empty removes the data of server i. The server must be the only one of its cluster, and Kill must have ended it.
func (c *EtcdCluster) Empty(i int) {
	c.t.Helper()
	if err := os.RemoveAll(c.members[i].dir); err != nil {
		c.t.Fatal(err)
	}
}

// Backup writes a backup of the data of server i to a file, and returns the name of the file.
func (c *EtcdCluster) Backup(i int) string {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "backup")
	c.etcdctl("--endpoints", c.Addr(i), "snapshot", "save", file)
	return file
}

// Restore replaces the data of server i by a backup. The server must be the only one of its cluster, and Kill must
// have ended it.
func (c *EtcdCluster) Restore(i int, file string) {
	c.t.Helper()
	c.Empty(i)
	m := c.members[i]
	peer := fmt.Sprint("http://127.0.0.1:", m.peer.Number)
	c.etcdctl("snapshot", "restore", file, "--data-dir", m.dir, "--name", m.name,
		"--initial-cluster", m.name+"="+peer, "--initial-advertise-peer-urls", peer)
}

func (c *EtcdCluster) etcdctl(args ...string) {
	c.t.Helper()
	cmd := exec.Command("etcdctl", args...)
	cmd.Env = append(cmd.Environ(), "ETCDCTL_API=3")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("etcdctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Pause suspends the process of server i. Its connections remain open.
func (c *EtcdCluster) Pause(i int) {
	c.t.Helper()
	if err := c.members[i].process.Pause(); err != nil {
		c.t.Fatal(err)
	}
}

// Resume continues the process of server i after Pause.
func (c *EtcdCluster) Resume(i int) {
	c.t.Helper()
	if err := c.members[i].process.Resume(); err != nil {
		c.t.Fatal(err)
	}
}

// Leader waits until a server reports that it is the leader, and returns its number.
func (c *EtcdCluster) Leader() int {
	c.t.Helper()
	for end := time.Now().Add(stepLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for i := range c.members {
			var status struct {
				Header struct {
					Member string `json:"member_id"`
				}
				Leader string
			}
			err := c.call(i, time.Second, "maintenance/status", struct{}{}, &status)
			if err == nil && status.Leader == status.Header.Member {
				return i
			}
		}
	}
	c.t.Fatal("no server is the leader")
	return -1
}

func (c *EtcdCluster) startServer(i int) {
	c.t.Helper()
	m := c.members[i]
	if m.process != nil {
		c.t.Fatalf("%s is already running", m.name)
	}
	cmd := exec.Command("etcd", c.memberArguments(m)...)
	cmd.Stdout, cmd.Stderr = m.logs, m.logs
	p, err := testenv.StartProcess(cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	m.process = p
}

func (c *EtcdCluster) memberArguments(m *etcdMember) []string {
	peer := fmt.Sprint("http://127.0.0.1:", m.peer.Number)
	client := fmt.Sprintf("%s://127.0.0.1:%d", c.urlScheme(), m.client.Number)
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

// waitReady waits until all running servers are healthy.
func (c *EtcdCluster) waitReady() {
	c.t.Helper()
	client := c.httpClient(time.Second)
	end := time.Now().Add(stepLimit)
	for i, m := range c.members {
		for m.process != nil && !isHealthy(client, c.URL(i)) {
			switch {
			case m.process.Ended():
				c.t.Fatalf("%s has exited:\n%s", m.name, m.lastLogLines())
			case time.Now().After(end):
				c.t.Fatalf("%s does not answer:\n%s", m.name, m.lastLogLines())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// isHealthy reports whether a server answers and the cluster has a leader. isHealthy uses HTTP, because a gRPC
// client waits for a second if its connection is refused.
func isHealthy(client *http.Client, url string) bool {
	response, err := client.Get(url + "/health")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (m *etcdMember) lastLogLines() string { return testenv.LastLinesOf(m.logs.Name()) }

func (c *EtcdCluster) close() {
	for _, m := range c.members {
		if m.process != nil {
			c.killMember(m)
		}
		if m.logs != nil {
			if c.t.Failed() {
				c.t.Logf("last lines of the log of %s:\n%s", m.name, m.lastLogLines())
			}
			m.logs.Close()
		}
		for _, p := range []*testenv.Port{m.client, m.peer} {
			if p != nil {
				p.Release()
			}
		}
	}
}
