//go:build unix && !no_raftlog

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// raftSession is long enough for leases to stay up, and hand-overs to be told from their end, on a
// machine that stands still for a second or two.
const raftSession = 3 * time.Second

// onRaft are three processes that are the peers of a cluster, and stand in an election on it.
type onRaft struct {
	*electors
	dir   string
	peers string
	flags []string
}

func newOnRaft(t *testing.T) *onRaft {
	dir, err := testenv.MakeDir("elector") // a disk may take long for a sync
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	o := &onRaft{electors: &electors{T: t}, dir: dir}
	o.file = filepath.Join(o.dir, "deeds")
	var peers []string
	for _, name := range []string{"a", "b", "c"} {
		port, err := testenv.ReservePort()
		require.NoError(t, err)
		t.Cleanup(port.Release)
		peers = append(peers, fmt.Sprintf("%s=127.0.0.1:%d", name, port.Number))
	}
	o.peers = strings.Join(peers, ",")
	o.flags = []string{
		"run", "--backend", "raftlog", "--peers", o.peers, "--election", "one",
		"--session-timeout", raftSession.String(), "--secret-file", o.secret("secret", "sixteen bytes, and some more\n"),
	}
	return o
}

func (o *onRaft) secret(name, text string) string {
	o.Helper()
	file := filepath.Join(o.dir, name)
	require.NoError(o, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// run starts a peer, on the folder of its name.
func (o *onRaft) run(name, script string, more ...string) *process {
	o.Helper()
	args := slices.Concat(o.flags, []string{
		"--peer-id", name, "--instance-id", name, "--data", filepath.Join(o.dir, name), "--grace", "10ms",
	}, more)
	return start(o.T, []string{"NAME=" + name, "FILE=" + o.file}, append(args, "--", "/bin/sh", "-c", script)...)
}

// alone takes the lock, works until it is told to end or is killed, and finds who works beside
// it: a shell writes its number into the lock file, and sees there that of another one alive.
// TERM is for its whole group, so what it reads in the loop it reads itself.
const alone = `other=$(cat "$FILE.lock" 2>/dev/null)
if [ -n "$other" ] && kill -0 "$other" 2>/dev/null; then echo "$NAME beside $other" >> "$FILE.both"; fi
echo $$ > "$FILE.lock"
trap 'echo "$NAME ends" >> "$FILE"; exit 0' TERM
echo "$NAME" >> "$FILE"
echo "works $ELECTOR_TOKEN"
while :; do echo "$NAME" >> "$FILE"; sleep 0.01; read -r holder < "$FILE.lock"; [ "$holder" = $$ ] || echo "$NAME beside another" >> "$FILE.both"; done`

// leader is who is the first of them to work, from now on.
func (o *onRaft) leader(among map[string]*process) string {
	o.Helper()
	limit := time.After(2 * patience) // some election timeouts
	for {
		for name, p := range among {
			select {
			case line := <-p.out.fresh:
				if strings.HasPrefix(line, "works") {
					return name
				}
			default:
			}
		}
		select {
		case <-time.After(time.Millisecond):
		case <-limit:
			require.Fail(o, "nobody works")
		}
	}
}

// never checks that no two have worked at once.
func (o *onRaft) never() {
	o.Helper()
	text, err := os.ReadFile(o.file + ".both")
	require.ErrorIs(o, err, os.ErrNotExist, "two have worked at once: %s", text)
}

// TestRaftlog: three peers, of which one works; who hands over is followed, and so is, within a few
// election timeouts, who is killed; what was stopped goes on with the
// same folders.
func TestRaftlog(t *testing.T) {
	t.Parallel()
	o := newOnRaft(t)
	all := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = o.run(name, alone)
	}
	first := o.leader(all)

	all[first].signal(syscall.SIGTERM)
	rest := maps.Clone(all)
	delete(rest, first)
	second := o.leader(rest)
	require.Equal(t, exitOK, all[first].exit())

	all[first] = o.run(first, alone, listening...)
	pages := all[first].pages()
	pages.becomes("/readyz", 200, `{"ok":true}`) // in line
	pages.becomes("/leader", 503, `"name":"`+second+`"`)
	began := time.Now()
	all[second].signal(syscall.SIGKILL)
	rest = maps.Clone(all)
	delete(rest, second)
	third := o.leader(rest)
	require.Less(t, time.Since(began), 5*raftSession)
	require.Equal(t, -1, all[second].exit())

	delete(all, second)
	for _, p := range all {
		p.signal(syscall.SIGTERM)
	}
	for name, p := range all {
		require.Equal(t, exitOK, p.exit(), name)
	}
	order := slices.Compact(slices.DeleteFunc(o.deeds(), func(d string) bool { return strings.HasSuffix(d, " ends") }))
	require.Equal(t, []string{first, second, third}, order[:3])
	for _, name := range []string{"a", "b", "c"} {
		all[name] = o.run(name, alone)
	}
	o.leader(all)
	o.never()
}

// TestRaftlogStopped: the program of a leader that is stopped ends before another one begins,
// though it does not want to.
func TestRaftlogStopped(t *testing.T) {
	t.Parallel()
	o := newOnRaft(t)
	all := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = o.run(name, strings.Replace(alone, "exit 0", ":", 1), "--grace", "10s")
	}
	first := o.leader(all)
	all[first].signal(syscall.SIGSTOP)
	delete(all, first)
	second := o.leader(all)
	all[second].signal(syscall.SIGKILL)
	require.Equal(t, -1, all[second].exit())
	o.never()
	order := slices.Compact(slices.DeleteFunc(o.deeds(), func(d string) bool { return strings.HasSuffix(d, " ends") }))
	require.Equal(t, []string{first, second}, order)
}

// TestRaftlogWrongSecret: it ends, and says why; the others do without it.
func TestRaftlogWrongSecret(t *testing.T) {
	t.Parallel()
	o := newOnRaft(t)
	all := map[string]*process{"a": o.run("a", alone), "b": o.run("b", alone)}
	o.leader(all)
	c := o.run("c", alone, "--secret-file", o.secret("other", "another secret, as long as it has to be"))
	require.Contains(t, c.logs("elector: "), "every other peer refuses this one")
	require.Equal(t, exitBackend, c.exit())
	require.Contains(t, c.log.text(), "the secret differs")
	require.NotContains(t, c.log.text(), "another secret")
}

// TestRaftlogNoMajority: a peer alone waits, says for what, is not ready, and can be ended.
func TestRaftlogNoMajority(t *testing.T) {
	t.Parallel()
	o := newOnRaft(t)
	a := o.run("a", alone, listening...)
	pages := a.pages()
	a.logs("no leader of the log")
	pages.is("/readyz", 503, "no majority")
	pages.is("/healthz", 200, `{"ok":true}`)
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
}

// TestRaftlogFolders: what stands in the way in the folder, or of the port, is told at once.
func TestRaftlogFolders(t *testing.T) {
	t.Parallel()
	o := newOnRaft(t)
	a := o.run("a", alone)
	a.logs("no leader of the log")
	again := o.run("a", alone)
	again.logs("in use")
	require.Equal(t, exitUsage, again.exit())
	b := o.run("b", alone, "--data", filepath.Join(o.dir, "elsewhere"), "--peer-listen", strings.TrimPrefix(strings.Split(o.peers, ",")[0], "a="))
	b.logs("cannot listen")
	require.Equal(t, exitFailed, b.exit())
	a.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, a.exit())
	b = o.run("b", alone, "--data", filepath.Join(o.dir, "a"))
	b.logs("belongs to peer a")
	require.Equal(t, exitUsage, b.exit())

	require.NoError(t, os.WriteFile(filepath.Join(o.dir, "a", "peer.json"), []byte("nothing"), 0o600))
	a = o.run("a", alone)
	a.logs("under the same --peer-id")
	require.Equal(t, exitBackend, a.exit())
}

// TestRaftlogKeepsLostGrace: a leadership ends so early that --lost-grace fits in before another
// one can begin.
func TestRaftlogKeepsLostGrace(t *testing.T) {
	t.Parallel()
	o := newOnRaft(t)
	own := strings.Split(o.peers, ",")[0]
	s, r, err := parse(t, slices.Concat(o.flags, []string{"--peers", own, "--peer-id", "a", "--data", filepath.Join(o.dir, "a"), "--lost-grace", (raftSession / 8).String()})...)
	require.NoError(t, err)
	s.raftlog.peers = []string{own}
	b, err := newRaftPeer(s)
	require.NoError(t, err)
	t.Cleanup(b.close)
	require.NoError(t, r.allows(raftSession, "that is asked for"))
	c, err := b.candidate(t.Context())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- c.ElectLeader() }()
	var l *leaderelection.Leadership
	for status := range c.Status() {
		if l = status.Leadership; l != nil {
			break
		}
	}
	require.NotNil(t, l)
	deadline := l.Deadline()
	remaining := b.node.Load().Info().Lease
	lease := time.Now().Add(remaining) // read after the deadline, so it is not earlier than then
	require.GreaterOrEqual(t, lease.Sub(deadline), raftSession/8-5*time.Millisecond)
	electiontest.Confirm(t, c.Resign)
	require.NoError(t, <-ended)
}

func TestRaftlogUsage(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	secret, short := write("secret", strings.Repeat("s", 16)+"\n"), write("short", strings.Repeat("s", 15)+"\n")
	data := filepath.Join(dir, "data")
	good := map[string]string{"peers": "a=h:1,b=h:2", "peer-id": "a", "data": data, "secret-file": secret}
	for _, bad := range []struct{ flag, value, says string }{
		{"peers", "", "--peers is required"},
		{"peers", "a", "id=host:port"},
		{"peers", "a=h", "id=host:port"},
		{"peers", "=h:1", "id=host:port"},
		{"peers", "a=:1", "id=host:port"},
		{"peers", "a=h:1,a=h:2", "the same ID or address"},
		{"peers", "a=h:1,b=h:1", "the same ID or address"},
		{"peer-id", "", "--peer-id is required"},
		{"peer-id", "c", "not one of --peers"},
		{"data", "", "--data is required"},
		{"cluster", "", "--cluster"},
		{"peer-listen", "h", "--peer-listen"},
		{"session-timeout", "99ms", "--session-timeout"},
		{"session-timeout", "61m", "--session-timeout"},
		{"lost-grace", "600ms", "--lost-grace"},
		{"secret-file", "", "peer authentication required"},
		{"secret-file", filepath.Join(dir, "none"), "--secret-file"},
		{"secret-file", short, "15 bytes"},
		{"secret", strings.Repeat("x", 20), "only one of them"},
		{"insecure", "true", "--insecure is not compatible"},
		{"cert-file", "none", "belong together"},
		{"tls", "true", "belong together"},
		{"allowed-names", "x", "--allowed-names restricts certificates"},
		{"value", strings.Repeat("v", 1023), "exceed the limit of 1024"},
	} {
		flags := maps.Clone(good)
		flags[bad.flag] = bad.value
		args := []string{"run", "--backend", "raftlog", "--leader-begin-command", "x"}
		for name, value := range flags {
			args = append(args, "--"+name+"="+value)
		}
		root := newRoot()
		root.SetArgs(args)
		err := root.Execute()
		require.ErrorContains(t, err, bad.says, "--%s=%s", bad.flag, bad.value)
		require.Equal(t, exitUsage, exitCode(err), "--%s=%s: %v", bad.flag, bad.value, err)
		require.NotContains(t, err.Error(), "xxxx", "the secret is shown")
		require.NoDirExists(t, data)
	}
	// Other commands are clients, which need neither --peer-id nor --data.
	for _, command := range []string{"status", "watch", "resign"} {
		for _, flags := range [][]string{nil, {"--peers", "a"}, {"--peers", good["peers"]}, {"--peers", good["peers"], "--secret-file", short}} {
			root := newRoot()
			root.SetArgs(append([]string{command, "--backend", "raftlog"}, flags...))
			require.Equal(t, exitUsage, exitCode(root.Execute()), "%s %v", command, flags)
		}
	}
}

// TestRaftlogCommands: commands that are not peers show the candidates, and request the leader to
// resign.
func TestRaftlogCommands(t *testing.T) {
	t.Parallel()
	o := newOnRaft(t)
	o.flags = append(o.flags, "--session-timeout", "10s") // leadership does not move unless requested
	access := slices.DeleteFunc(slices.Clone(o.flags), func(flag string) bool { return flag == "run" })
	do := func(args ...string) *process { return start(t, nil, slices.Concat(args[:1], access, args[1:])...) }
	all := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = o.run(name, alone, "--value", name+":80")
	}
	first := o.leader(all)
	watching := do("watch")
	leads := func(name string) {
		t.Helper()
		watching.out.wait(t, func(line string) bool { return strings.Contains(line, " "+name+" leads") }, name+" leads")
	}
	leads(first)
	for _, p := range all {
		if p != all[first] {
			p.logs("follower")
		}
	}
	status := do("status", "--is-leader", first)
	require.Contains(t, status.says("leader"), first+":80")
	require.Equal(t, exitOK, status.exit())

	resign := do("resign")
	resign.says(first + " has handed over")
	require.Equal(t, exitOK, resign.exit())
	rest := maps.Clone(all)
	delete(rest, first)
	second := o.leader(rest)
	leads(second)
	all[first].logs("follower") // it has joined again
	watching.signal(syscall.SIGTERM)
	require.Equal(t, exitOK, watching.exit())
	for _, name := range []string{first, second} {
		require.Equal(t, 1, strings.Count(watching.out.text(), " "+name+" leads"), watching.out.text())
	}
	o.never()

	wrong := do("status", "--secret-file", o.secret("wrong", "another secret, as long as it has to be"))
	require.Contains(t, wrong.logs("elector: "), "must be those of the peers")
	require.Equal(t, exitBackend, wrong.exit())
	require.Equal(t, exitNobody, do("status", "--election", "other").exit())
	require.Equal(t, exitUsage, do("end").exit(), "the electors would exit, and with them the log")
}

// TestRaftlogSettings: the file has the same names, and the secret may come by a variable.
func TestRaftlogSettings(t *testing.T) {
	t.Setenv("ELECTOR_SECRET", strings.Repeat("x", 16))
	dir := t.TempDir()
	file := filepath.Join(dir, "elector.yaml")
	require.NoError(t, os.WriteFile(file, []byte("backend: raftlog\npeers: a=h:1,b=h:2\npeer-id: b\npeer-listen: 0.0.0.0:2\ndata: "+dir+"\n"), 0o600))
	s, _, err := parse(t, "run", "--config", file)
	require.NoError(t, err)
	c, err := s.raftlog.config(s)
	require.NoError(t, err)
	require.Equal(t, "h:2", c.Addr)
	require.Equal(t, "0.0.0.0:2", c.Listen)
	require.Equal(t, "elector", c.Cluster)
	require.Equal(t, strings.Repeat("x", 16), string(c.Secret))
	require.Equal(t, 4*time.Second, c.ElectionTimeout)
	require.Contains(t, credentials, "ELECTOR_SECRET")
}
