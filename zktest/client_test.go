package zktest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv"
	"github.com/go-leaderelection/leaderelection/zktest"
)

// clientProgram is a process that runs a client of another library. It prints lines on its
// standard output, and reads lines from its standard input.
type clientProgram struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
}

// startClient starts a program. If the program or one of the files is not installed, the test is
// skipped, or fails as testenv.SkipMissing describes. If mergeStderr is true, the output includes
// standard error.
func startClient(t *testing.T, mergeStderr bool, files []string, name string, args ...string) *clientProgram {
	t.Helper()
	_, err := exec.LookPath(name)
	for _, f := range files {
		if _, e := os.Stat(f); err == nil {
			err = e
		}
	}
	if err != nil {
		testenv.SkipMissing(t, name, err)
	}
	cmd := exec.Command(name, args...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	errors := new(strings.Builder)
	if cmd.Stderr = errors; mergeStderr {
		cmd.Stderr = cmd.Stdout
	}
	require.NoError(t, cmd.Start())
	killer := time.AfterFunc(90*time.Second, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() {
		in.Close()
		if t.Failed() {
			_ = cmd.Process.Kill()
		}
		_, _ = io.Copy(io.Discard, out)
		err := cmd.Wait()
		killer.Stop()
		assert.True(t, err == nil && !t.Failed(), "%s: %v\n%s", name, err, errors.String())
	})
	return &clientProgram{t: t, in: in, out: bufio.NewScanner(out)}
}

// expect fails the test if the next line is not want.
func (p *clientProgram) expect(want string) {
	p.t.Helper()
	got := p.readLine()
	require.Equal(p.t, want, got, "the client prints %q, want %q", got, want)
}

func (p *clientProgram) readLine() string {
	p.t.Helper()
	require.True(p.t, p.out.Scan(), "the client has ended: %v", p.out.Err())
	return p.out.Text()
}

// readNumber reads a line that consists of prefix and a number.
func (p *clientProgram) readNumber(prefix string) int64 {
	p.t.Helper()
	line := p.readLine()
	rest, ok := strings.CutPrefix(line, prefix)
	n, err := strconv.ParseInt(rest, 10, 64)
	require.True(p.t, ok && err == nil, "the client prints %q, want %q and a number", line, prefix)
	return n
}

// sendLine writes a line to the standard input of the program.
func (p *clientProgram) sendLine(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	require.NoError(p.t, err)
}

// startJava starts Java with the given jars of Debian's packages. It does not use all jars of the
// directory, because some conflict with each other.
func startJava(t *testing.T, mergeStderr bool, jars []string, args ...string) *clientProgram {
	t.Helper()
	var files []string
	for _, j := range jars {
		files = append(files, "/usr/share/java/"+j+".jar")
	}
	classpath := "/etc/zookeeper/conf:" + strings.Join(files, ":")
	return startClient(t, mergeStderr, files, "java",
		append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath}, args...)...)
}

var curatorJars = []string{"curator-recipes", "curator-framework", "curator-client", "zookeeper", "guava"}

// TestServer_SupportsRecipesOfCurator checks that Curator's recipes work with the server.
func TestServer_SupportsRecipesOfCurator(t *testing.T) {
	s := zktest.Start(t)
	p := startJava(t, false, curatorJars, "testdata/recipes.java", s.Addr())
	p.expect("mutex acquired 60 by at most 1")
	p.expect("second reader true writer false")

	session := p.readNumber("leader id0 session ")
	require.NoError(t, s.ExpireSession(session))
	p.sendLine("expired")
	p.expect("leader id1")
	p.expect("leader id2 participants 2")
	p.expect("leader id0 again")

	c, _, err := s.Connect(10 * time.Second)
	require.NoError(t, err)
	create := func(path, data string) {
		t.Helper()
		_, err := c.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	p.expect("cache ready")
	create("/cache/a", "one")
	p.expect("event NODE_CREATED /cache/a one")
	create("/cache/a/b", "two")
	p.expect("event NODE_CREATED /cache/a/b two")
	_, err = c.Set("/cache/a", []byte("three"), -1)
	require.NoError(t, err)
	p.expect("event NODE_CHANGED /cache/a three")
	require.NoError(t, c.Delete("/cache/a/b", -1))
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
	<-gate.Ran() // wait until one of the clients has tried to reconnect
	create("/cache/c", "while disconnected")
	gate.Remove()
	p.sendLine("dropped")
	p.expect("event NODE_CREATED /cache/c while disconnected")
	p.expect("cache size 3")

	p.expect("count 5")
	p.expect("tx x [a]")
	p.expect("protected /tx/_c_-p-0000000001")
	p.expect("stat 0")
	p.expect("barrier passed")
	p.expect("done")
}

// TestServer_SupportsRecipesOfKazoo checks that kazoo's recipes work with the server.
func TestServer_SupportsRecipesOfKazoo(t *testing.T) {
	s := zktest.Start(t)
	p := startClient(t, false, []string{"/usr/lib/python3/dist-packages/kazoo"}, "/usr/bin/python3", "testdata/kazoo_client.py", s.Addr())
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
	id := p.readNumber("session ")
	assert.Equal(t, 1, s.DropConnections(id), "connections dropped")
	p.sendLine("dropped")
	p.expect("back True True")
	p.expect("expire me")
	assert.NoError(t, s.ExpireSession(id))
	p.sendLine("expired")
	p.expect("lost True back True None")
	p.expect("done")
}

// TestServer_SupportsCommandsOfZkCli checks that the commands of ZooKeeper's shell work with the server.
func TestServer_SupportsCommandsOfZkCli(t *testing.T) {
	s := zktest.Start(t)
	p := startJava(t, true, []string{"zookeeper"},
		"org.apache.zookeeper.ZooKeeperMain", "-waitforconnection", "-server", s.Addr())
	for _, cmd := range []string{
		"create /z first", "create -e -s /z/e- x", "create -s /z/s- y", "create -c /z/box", "create -t 60000 /z/ttl t",
		"get -s /z", "set -v 0 /z second", "get /z", "ls /z", "ls -R /", "stat /z", "getAllChildrenNumber /z", "getEphemerals /z",
		"addauth digest me:pw", "create /z/mine m auth::cdrwa", "getAcl /z/mine", "setAcl /z/s-0000000001 world:anyone:r",
		"getAcl -s /z/s-0000000001", "whoami", "sync /z", "config", "addWatch -m PERSISTENT_RECURSIVE /z", "set /z third",
		"create /z/deep", "removewatches /z", "delete /z/none", "deleteall /z/deep", "setquota -n 100 /z", "listquota /z", "version", "quit",
	} {
		p.sendLine(cmd)
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
		assert.Contains(t, out, want, "zkCli does not print %q", want)
	}
	if t.Failed() {
		t.Log(out)
	}
	if log := s.Log(); log.Count(zktest.OpAddWatch) != 1 || log.Count(zktest.OpRemoveWatches) != 1 || log.Count(zktest.OpCloseSession) != 1 {
		t.Errorf("unexpected requests:\n%v", log.Requests())
	}
	assert.Empty(t, s.Sessions(), "sessions after quit")
}

// TestClient_ParsesFourLetterWords checks that go-zookeeper can parse the server's answers to ruok and cons. The
// library's parsers of the other words do not support current servers.
func TestClient_ParsesFourLetterWords(t *testing.T) {
	s := zktest.Start(t)
	addr := []string{s.Addr()}
	if ok := zk.FLWRuok(addr, 5*time.Second); !ok[0] {
		t.Error("the answer to ruok is not imok")
	}
	c, events, err := s.Connect(10*time.Second, zk.WithDialer(net.DialTimeout), zk.WithHostProvider(zktest.HostProvider(s.Addr())))
	require.NoError(t, err)
	for ev := range events {
		if ev.State == zk.StateHasSession {
			break
		}
	}
	clients, ok := zk.FLWCons(addr, 5*time.Second)
	// The client library cannot parse the line of its own connection, which has no session.
	if !ok && len(clients[0].Clients) == 0 {
		t.Fatalf("cannot parse the answer to cons: %+v", clients[0])
	}
	found := false
	for _, x := range clients[0].Clients {
		found = found || x.SessionID == c.SessionID()
	}
	assert.True(t, found, "session %x is not in %s", c.SessionID(), fmt.Sprint(clients[0].Clients))
}

// TestConfig_LetsCuratorReachOtherServers checks that /zookeeper/config lists the addresses of the servers:
// Curator replaces its list of servers by these addresses, and connects to one of them when its server stops.
func TestConfig_LetsCuratorReachOtherServers(t *testing.T) {
	ens := zktest.StartEnsemble(t, 3)
	addrs := ens.Addrs()
	slices.Reverse(addrs) // reverse the list, so that it differs from the one in /zookeeper/config
	p := startJava(t, false, curatorJars, "testdata/tracker.java", strings.Join(addrs, ","))
	p.expect("tracks true")
	session := p.readNumber("session ")
	// Repeat, because Curator may connect to another server when it reads the list of servers.
	for stopped := false; !stopped; time.Sleep(time.Millisecond) {
		for _, s := range ens.Server(0).Sessions() {
			if s.ID == session && s.Server >= 0 {
				ens.Server(s.Server).Stop()
				stopped = true
			}
		}
	}
	p.sendLine("stopped")
	p.expect("done")
}
