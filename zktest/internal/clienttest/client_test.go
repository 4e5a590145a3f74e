// Package clienttest lets other people's clients, as they are, talk to zktest.
package clienttest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const java = "/usr/share/java/"

// program is a client that runs in a process of its own. It says things on its
// standard output and is told things on its standard input, a line each.
type program struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

// start runs a program. What it needs must be there if ZKTEST_REAL=required;
// otherwise the test is skipped if something is missing. With together what it
// says on its standard error is part of the output.
func start(t *testing.T, together bool, needs []string, name string, args ...string) *program {
	t.Helper()
	_, err := exec.LookPath(name)
	for _, f := range needs {
		if _, e := os.Stat(f); err == nil {
			err = e
		}
	}
	if err != nil {
		if os.Getenv("ZKTEST_REAL") == "required" {
			t.Fatalf("no such client: %v", err)
		}
		t.Skipf("NOT TRIED with %s: %v", name, err)
	}
	cmd := exec.Command(name, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errors := new(strings.Builder)
	if cmd.Stderr = errors; together {
		cmd.Stderr = cmd.Stdout
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(90*time.Second, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		in.Close()
		if t.Failed() {
			_ = cmd.Process.Kill()
		}
		_, _ = io.Copy(io.Discard, out)
		err := cmd.Wait()
		late.Stop()
		if err != nil || t.Failed() {
			t.Errorf("%s: %v\n%s", name, err, errors.String())
		}
	})
	return &program{t: t, in: in, out: bufio.NewScanner(out)}
}

// expect wants the program to say exactly this next.
func (p *program) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("it says %q, not %q", got, want)
	}
}

func (p *program) line() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("it says no more: %v", p.out.Err())
	}
	return p.out.Text()
}

// number wants a line that begins with prefix and ends with a number.
func (p *program) number(prefix string) int64 {
	p.t.Helper()
	line := p.line()
	rest, ok := strings.CutPrefix(line, prefix)
	n, err := strconv.ParseInt(rest, 10, 64)
	if !ok || err != nil {
		p.t.Fatalf("it says %q, not %q and a number", line, prefix)
	}
	return n
}

func (p *program) tell(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// classpath of the Debian packages. All jars of the folder would clash.
func classpath(jars ...string) (cp string, needs []string) {
	for _, j := range jars {
		needs = append(needs, java+j+".jar")
	}
	return "/etc/zookeeper/conf:" + strings.Join(needs, ":"), needs
}

func TestCurator(t *testing.T) {
	cp, needs := classpath("curator-recipes", "curator-framework", "curator-client", "zookeeper", "guava")
	s := zktest.Start(t)
	p := start(t, false, needs, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", cp, "testdata/recipes.java", s.Addr())
	p.expect("mutex acquired 60 at once 1")
	p.expect("second reader true writer false")

	session := p.number("leader id0 session ")
	if err := s.ExpireSession(session); err != nil {
		t.Fatal(err)
	}
	p.tell("expired")
	p.expect("leader id1")
	p.expect("leader id2 participants 2")
	p.expect("leader id0 again")

	c, _, err := s.Connect(10 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(path, data string) {
		t.Helper()
		_, err := c.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll))
		must(err)
	}
	p.expect("cache ready")
	create("/cache/a", "one")
	p.expect("event NODE_CREATED /cache/a one")
	create("/cache/a/b", "two")
	p.expect("event NODE_CREATED /cache/a/b two")
	_, err = c.Set("/cache/a", []byte("three"), -1)
	must(err)
	p.expect("event NODE_CHANGED /cache/a three")
	must(c.Delete("/cache/a/b", -1))
	p.expect("event NODE_DELETED /cache/a/b two")
	p.expect("cache dropped?")
	gate := s.Before(zktest.Match{Op: zktest.OpConnect}, zktest.Cut)
	var others []int64
	for _, x := range s.Sessions() {
		if x.ID != c.SessionID() {
			others = append(others, x.ID)
		}
	}
	s.DropConnections(others...)
	<-gate.Ran() // one of them has tried to come back
	create("/cache/c", "meanwhile")
	gate.Remove()
	p.tell("dropped")
	p.expect("event NODE_CREATED /cache/c meanwhile")
	p.expect("cache size 3")

	p.expect("count 5")
	p.expect("tx x [a]")
	p.expect("protected /tx/_c_-p-0000000001")
	p.expect("stat 0")
	p.expect("barrier passed")
	p.expect("done")
}

func TestKazoo(t *testing.T) {
	s := zktest.Start(t)
	p := start(t, false, []string{"/usr/lib/python3/dist-packages/kazoo"}, "/usr/bin/python3", "testdata/kazoo_client.py", s.Addr())
	for _, want := range []string{
		"create /k/n-0000000001 /k/e",
		"create2 /k/s 0 4",
		"get data 0",
		"set 1 BadVersionError",
		"errors NoNodeError NodeExistsError NotEmptyError",
		"children ['a', 'e', 'n-0000000001', 's'] 4",
		"events [('CHANGED', '/k/s'), ('CHILD', '/k'), ('CREATED', '/k/new')]",
		"data watch [None, b'1', b'2']",
		"transaction ['/k/t1', 1, True, True]",
		"rolled back ['RolledBackError', 'NoNodeError', 'RuntimeInconsistency'] None",
		"acl NoAuthError s",
		"acls [(31, 'digest')]",
		"lock 20 1",
		"elected True",
		"party ['b']",
		"counter 2",
	} {
		p.expect(want)
	}
	id := p.number("session ")
	if n := s.DropConnections(id); n != 1 {
		t.Errorf("%d connections dropped", n)
	}
	p.tell("dropped")
	p.expect("back True True")
	p.expect("expire me")
	if err := s.ExpireSession(id); err != nil {
		t.Error(err)
	}
	p.tell("expired")
	p.expect("lost True back True None")
	p.expect("done")
}

// TestZkCli types into the shell of the ZooKeeper distribution.
func TestZkCli(t *testing.T) {
	s := zktest.Start(t)
	cp, needs := classpath("zookeeper")
	p := start(t, true, needs, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", cp,
		"org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-server", s.Addr())
	for _, cmd := range []string{
		"create /z first", "create -e -s /z/e- x", "create -s /z/s- y", "create -c /z/box", "create -t 60000 /z/ttl t",
		"get -s /z", "set -v 0 /z second", "get /z", "ls /z", "ls -R /", "stat /z", "getAllChildrenNumber /z", "getEphemerals /z",
		"addauth digest me:pw", "create /z/mine m auth::cdrwa", "getAcl /z/mine", "setAcl /z/s-0000000001 world:anyone:r",
		"getAcl -s /z/s-0000000001", "whoami", "sync /z", "config", "addWatch -m PERSISTENT_RECURSIVE /z", "set /z third",
		"create /z/deep", "removewatches /z", "delete /z/none", "deleteall /z/deep", "setquota -n 100 /z", "listquota /z", "version", "quit",
	} {
		p.tell(cmd)
	}
	p.in.Close()
	var b strings.Builder
	for p.out.Scan() {
		b.WriteString(p.out.Text() + "\n")
	}
	out := b.String()
	for _, want := range []string{
		"Created /z", "Created /z/e-0000000000", "Created /z/s-0000000001", "Created /z/box", "Created /z/ttl",
		"first\n", "dataVersion = 0", "second\n", "numChildren = 4", "[box, e-0000000000, s-0000000001, ttl]",
		"/zookeeper/quota", "[/z/e-0000000000]", "'digest,'me:", ": cdrwa", "'world,'anyone\n: r\n",
		"Auth scheme: User", "ip: 127.0.0.1", "digest: me", "Sync is OK", "type:NodeDataChanged path:/z",
		"type:NodeCreated path:/z/deep", "Node does not exist: /z/none", "count=100",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("zkCli did not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
	if log := s.Log(); log.Count(zktest.OpAddWatch) != 1 || log.Count(zktest.OpRemoveWatches) != 1 || log.Count(zktest.OpCloseSession) != 1 {
		t.Errorf("the server's log:\n%v", log.Requests())
	}
	if n := len(s.Sessions()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestFourLetterWords reads words with go-zookeeper's own parser, those of which
// it understands what a server of today says.
func TestFourLetterWords(t *testing.T) {
	s := zktest.Start(t)
	addr := []string{s.Addr()}
	if ok := zk.FLWRuok(addr, 5*time.Second); !ok[0] {
		t.Error("not ok")
	}
	c, events, err := s.Connect(10*time.Second, zk.WithDialer(net.DialTimeout), zk.WithHostProvider(zktest.HostProvider(s.Addr())))
	if err != nil {
		t.Fatal(err)
	}
	for ev := range events {
		if ev.State == zk.StateHasSession {
			break
		}
	}
	clients, ok := zk.FLWCons(addr, 5*time.Second)
	if !ok && len(clients[0].Clients) == 0 { // the asking connection has no session, which it cannot parse
		t.Fatalf("cons: %+v", clients[0])
	}
	found := false
	for _, x := range clients[0].Clients {
		found = found || x.SessionID == c.SessionID()
	}
	if !found {
		t.Errorf("session %x is not in %s", c.SessionID(), fmt.Sprint(clients[0].Clients))
	}
}

// TestGoZookeeper tries what the client of most programs offers, over TCP, with its
// own defaults.
func TestGoZookeeper(t *testing.T) {
	s := zktest.Start(t)
	open := zk.WorldACL(zk.PermAll)
	dial := func() *zk.Conn {
		c, _, err := zk.Connect([]string{s.Addr()}, 10*time.Second, zk.WithLogInfo(false))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	a, b := dial(), dial()

	// Its lock.
	var inside, most, total atomic.Int32
	var wg sync.WaitGroup
	for _, c := range []*zk.Conn{a, a, b, b} {
		wg.Go(func() {
			l := zk.NewLock(c, "/lock", open)
			for range 10 {
				if err := l.Lock(); err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				total.Add(1)
				inside.Add(-1)
				if err := l.Unlock(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if total.Load() != 40 || most.Load() != 1 {
		t.Errorf("%d times in the lock, %d at once", total.Load(), most.Load())
	}

	// A protected create whose answer is lost is found again.
	_, err := a.Create("/p", nil, 0, open)
	must(err)
	s.After(zktest.Match{Op: zktest.OpCreate, Path: "/p/*", Nth: 1}, zktest.Cut)
	path, err := a.CreateProtectedEphemeralSequential("/p/n-", []byte("x"), open)
	must(err)
	kids, stat, err := b.Children("/p")
	must(err)
	if len(kids) != 1 || "/p/"+kids[0] != path || stat.NumChildren != 1 {
		t.Errorf("made %s, there is %q", path, kids)
	}

	// Containers, TTL, access control.
	_, err = a.CreateContainer("/box", nil, zk.FlagContainer, open)
	must(err)
	_, err = a.CreateTTL("/ttl", nil, zk.FlagTTL, open, time.Hour)
	must(err)
	must(a.AddAuth("digest", []byte("me:pw")))
	_, err = a.Create("/mine", []byte("secret"), 0, zk.AuthACL(zk.PermAll))
	must(err)
	if _, _, err := b.Get("/mine"); err != zk.ErrNoAuth {
		t.Errorf("get without permission: %v", err)
	}
	must(b.AddAuth("digest", []byte("me:pw")))
	data, _, err := b.Get("/mine")
	must(err)
	acls, _, err := b.GetACL("/mine")
	must(err)
	if string(data) != "secret" || len(acls) != 1 || acls[0] != zk.DigestACL(zk.PermAll, "me", "pw")[0] {
		t.Errorf("%q %v", data, acls)
	}
	_, err = b.SetACL("/mine", open, 0)
	must(err)

	// Watches last over a new connection.
	_, _, created, err := b.ExistsW("/later")
	must(err)
	_, _, children, err := b.ChildrenW("/p")
	must(err)
	gate := s.Before(zktest.Match{Op: zktest.OpConnect, Session: b.SessionID()}, zktest.Cut)
	s.DropConnections(b.SessionID())
	<-gate.Ran()
	must(a.Delete(path, -1))
	gate.Remove()
	if ev := <-children; ev.Type != zk.EventNodeChildrenChanged {
		t.Errorf("missed while it was away: %+v", ev)
	}
	_, err = a.Create("/later", nil, 0, open)
	must(err)
	if ev := <-created; ev.Type != zk.EventNodeCreated {
		t.Errorf("after it was away: %+v", ev)
	}
}
