//go:build unix && !no_raftlog

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/electiontest"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// raftSession is the session timeout of the tests on raftlog. It is so long that leases do not expire on a machine
// that stalls for a second or two, and that a hand-over is faster than the expiry of a lease.
const raftSession = 3 * time.Second

// newRaftlogHarness returns a harness for three electors, a, b and c, that are the peers of a log.
func newRaftlogHarness(t *testing.T) *harness {
	dir, err := testenv.MakeDir("elector") // the file system of this directory has fast syncs
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	r := newHarnessIn(t, dir, nil)
	var peers []string
	for _, name := range []string{"a", "b", "c"} {
		port, err := testenv.ReservePort()
		require.NoError(t, err)
		t.Cleanup(port.Release)
		peers = append(peers, fmt.Sprintf("%s=127.0.0.1:%d", name, port.Number))
	}
	r.peers = strings.Join(peers, ",")
	r.flags = []string{
		"--backend", "raftlog", "--peers", r.peers, "--election", "one",
		"--session-timeout", raftSession.String(), "--secret-file", r.writeSecret("secret", "sixteen bytes, and some more\n"),
		"--client-secret-file", r.writeSecret("client-secret", "sixteen bytes for clients\n"),
	}
	r.runFlags = func(name string) []string {
		return []string{"--peer-id", name, "--dir", filepath.Join(dir, name), "--grace", "10ms"}
	}
	return r
}

func (h *harness) writeSecret(name, text string) string {
	h.Helper()
	file := filepath.Join(h.dir, name)
	require.NoError(h, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// runAll starts the electors a, b and c, and returns their processes by name.
func (h *harness) runAll(script string, args ...string) map[string]*process {
	h.Helper()
	all := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		all[name] = h.run(name, script, args...)
	}
	return all
}

// exclusive is a program that works until it receives TERM. It writes its process ID to a lock file, and records if
// another process runs at the same time. TERM reaches its whole process group, so the loop reads the lock file
// without a subprocess.
const exclusive = `other=$(cat "$FILE.lock" 2>/dev/null)
if [ -n "$other" ] && kill -0 "$other" 2>/dev/null; then echo "$NAME overlaps with $other" >> "$FILE.overlap"; fi
echo $$ > "$FILE.lock"
trap 'echo "$NAME ends" >> "$FILE"; exit 0' TERM
echo "$NAME" >> "$FILE"
echo "works $ELECTOR_TOKEN"
while :; do echo "$NAME" >> "$FILE"; sleep 0.01; read -r holder < "$FILE.lock"; [ "$holder" = $$ ] || echo "$NAME overlaps" >> "$FILE.overlap"; done`

// waitForLeader waits until the program of one of the electors starts to work, and returns its name.
func (h *harness) waitForLeader(among map[string]*process) string {
	h.Helper()
	limit := time.After(2 * patience) // several election timeouts
	for {
		for name, p := range among {
			select {
			case line := <-p.output.Unread:
				if strings.HasPrefix(line, "works") {
					return name
				}
			default:
			}
		}
		select {
		case <-time.After(time.Millisecond):
		case <-limit:
			require.Fail(h, "no program works")
		}
	}
}

// requireNoOverlap requires that two programs have never run at the same time.
func (h *harness) requireNoOverlap() {
	h.Helper()
	text, err := os.ReadFile(h.file + ".overlap")
	require.ErrorIs(h, err, os.ErrNotExist, "two programs have run at the same time: %s", text)
}

// workOrder returns the names of the electors in the order in which their programs have worked.
func (h *harness) workOrder() []string {
	h.Helper()
	return slices.Compact(slices.DeleteFunc(h.readActions(), func(a string) bool { return strings.HasSuffix(a, " ends") }))
}

// processesExcept returns all processes except the one with the given name.
func processesExcept(all map[string]*process, name string) map[string]*process {
	rest := maps.Clone(all)
	delete(rest, name)
	return rest
}

// TestRaftlog_LeaderIsReplaced checks on the backend raftlog that another candidate replaces a leader that resigns or
// is killed in time, that two programs never run at the same time, and that peers can restart with their data
// directories.
func TestRaftlog_LeaderIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRaftlogHarness(t)
	all := r.runAll(exclusive)
	first := r.waitForLeader(all)

	all[first].signal(syscall.SIGTERM)
	second := r.waitForLeader(processesExcept(all, first))
	require.Equal(t, cmdline.OK, all[first].exitCode())

	all[first] = r.run(first, exclusive, listening...)
	pages := all[first].webClient()
	pages.waitForPage("/readyz", 200, `{"ok":true}`) // the peer is ready when its candidate has joined the queue
	pages.waitForPage("/leader", 503, `"name":"`+second+`"`)
	killed := time.Now()
	all[second].signal(syscall.SIGKILL)
	third := r.waitForLeader(processesExcept(all, second))
	require.Less(t, time.Since(killed), 5*raftSession)
	require.Equal(t, -1, all[second].exitCode())

	delete(all, second)
	for _, p := range all {
		p.signal(syscall.SIGTERM)
	}
	for name, p := range all {
		require.Equal(t, cmdline.OK, p.exitCode(), name)
	}
	require.Equal(t, []string{first, second, third}, r.workOrder()[:3])
	r.waitForLeader(r.runAll(exclusive))
	r.requireNoOverlap()
}

// TestRaftlog_EndsProgramOfSuspendedLeader checks that the program of a leader that SIGSTOP has suspended has ended
// when the next leader starts its program, even if the program ignores TERM.
func TestRaftlog_EndsProgramOfSuspendedLeader(t *testing.T) {
	t.Parallel()
	r := newRaftlogHarness(t)
	all := r.runAll(strings.Replace(exclusive, "exit 0", ":", 1), "--grace", "10s")
	first := r.waitForLeader(all)
	all[first].signal(syscall.SIGSTOP)
	delete(all, first)
	second := r.waitForLeader(all)
	all[second].signal(syscall.SIGKILL)
	require.Equal(t, -1, all[second].exitCode())
	r.requireNoOverlap()
	require.Equal(t, []string{first, second}, r.workOrder())
}

// TestRaftlog_PeerExitsIfAllOtherPeersRefuseSecret checks that a peer with a wrong secret keeps running and logs the
// reason while processes refuse it that have not authenticated themselves as peers, and exits if all other peers have
// authenticated themselves and refuse it.
func TestRaftlog_PeerExitsIfAllOtherPeersRefuseSecret(t *testing.T) {
	t.Parallel()
	r := newRaftlogHarness(t)
	all := map[string]*process{"a": r.run("a", exclusive), "b": r.run("b", exclusive)}
	r.waitForLeader(all)
	c := r.run("c", exclusive, "--secret-file", r.writeSecret("other", "another secret, as long as it has to be"))
	require.Contains(t, c.waitForLog("no leader of the log"), "the secret differs")
	require.NotContains(t, c.log.Text(), "another secret")
	c.terminate()

	swapped := r.run("c", exclusive, "--secret-file", filepath.Join(r.dir, "client-secret"), "--client-secret-file", filepath.Join(r.dir, "secret"))
	require.Contains(t, swapped.waitForLog("elector: "), "every other peer refuses this one")
	require.Equal(t, cmdline.Permanent, swapped.exitCode())
	require.Contains(t, swapped.log.Text(), "this is the secret of clients")
}

// TestRaftlog_PeerSurvivesStrangersAtPeerAddresses checks that a peer keeps running if other programs use the
// addresses of the other peers: servers of another protocol, or servers that refuse the peer but do not authenticate
// themselves as peers.
func TestRaftlog_PeerSurvivesStrangersAtPeerAddresses(t *testing.T) {
	t.Parallel()
	certificate := testenv.NewAuthority(t).Issue("stranger")
	// The reply of a peer's handshake, with no common secret, eight empty texts and an empty proof.
	refusal := "\x00\x00\x00\x1bLERL\x04\x04\x01\x01\x08" + strings.Repeat("\x00", 18)
	for name, stranger := range map[string]struct {
		answer func(net.Conn)
		reason string
	}{
		"a web server": {func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")) }, "another protocol"},
		"a refusal": {func(c net.Conn) {
			_, _ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}}).Write([]byte(refusal))
		}, "the secret differs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRaftlogHarness(t)
			var servers sync.WaitGroup
			defer servers.Wait()
			for _, p := range strings.Split(r.peers, ",")[1:] {
				l, err := net.Listen("tcp", p[len("b="):])
				require.NoError(t, err)
				defer l.Close()
				servers.Go(func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						servers.Go(func() {
							defer conn.Close()
							stranger.answer(conn)
							_, _ = io.Copy(io.Discard, conn)
						})
					}
				})
			}
			a := r.run("a", exclusive)
			require.Contains(t, a.waitForLog("no leader of the log"), stranger.reason)
			a.terminate()
		})
	}
}

// TestRaftlog_PeerRejectsInvalidDataDirectory checks that a peer does not start with the data directory of another
// peer, with a directory or a port that is in use, or with damaged data, and that a peer without a majority is not
// ready.
func TestRaftlog_PeerRejectsInvalidDataDirectory(t *testing.T) {
	t.Parallel()
	r := newRaftlogHarness(t)
	a := r.run("a", exclusive, listening...)
	pages := a.webClient()
	a.waitForLog("no leader of the log")
	pages.requirePage("/readyz", 503, `"reason":"disconnected"`)
	pages.requirePage("/healthz", 200, `{"ok":true}`)
	second := r.run("a", exclusive)
	second.requireExit(cmdline.Failed, "in use")
	b := r.run("b", exclusive, "--dir", filepath.Join(r.dir, "elsewhere"), "--peer-listen", strings.TrimPrefix(strings.Split(r.peers, ",")[0], "a="))
	b.requireExit(cmdline.Failed, "cannot listen")
	a.terminate()
	b = r.run("b", exclusive, "--dir", filepath.Join(r.dir, "a"))
	b.requireExit(cmdline.Usage, "belongs to peer a")

	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "a", "peer.json"), []byte("nothing"), 0o600))
	a = r.run("a", exclusive)
	a.requireExit(cmdline.Permanent, "under the same --peer-id")
}

// TestRaftlog_LeadershipEndsLostGraceBeforeLease checks that a leadership on raftlog ends so long before its lease in
// the log expires that --lost-grace elapses before the next leadership can begin.
func TestRaftlog_LeadershipEndsLostGraceBeforeLease(t *testing.T) {
	t.Parallel()
	r := newRaftlogHarness(t)
	own := strings.Split(r.peers, ",")[0]
	s, run, err := parse(t, slices.Concat([]string{"run"}, r.flags, []string{"--peer-id", "a", "--dir", filepath.Join(r.dir, "a"), "--lost-grace", maxLostGrace(raftSession).String()})...)
	require.NoError(t, err)
	require.NoError(t, s.raftlog.Peers.Replace([]string{own}))
	b, err := newRaftlogPeer(s)
	require.NoError(t, err)
	t.Cleanup(b.close)
	require.NoError(t, run.checkLostGrace(raftSession, "requested"))
	c, err := b.newCandidate(t.Context())
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
	remaining := b.lazyNode.created().Info().Lease
	lease := time.Now().Add(remaining) // this time is read after the deadline, so it is not too early
	require.GreaterOrEqual(t, lease.Sub(deadline), raftSession/8-5*time.Millisecond)
	electiontest.Confirm(t, c.Resign)
	require.NoError(t, <-ended)
}

// TestRaftlog_LogsExpiredCertificate checks that elector logs that the certificate of its own peer has expired.
func TestRaftlog_LogsExpiredCertificate(t *testing.T) {
	t.Parallel()
	r := newRaftlogHarness(t)
	now := time.Now()
	ca, cert, key := testenv.NewAuthority(t).WriteFiles(t.TempDir(), "127.0.0.1", now.Add(-2*time.Hour), now.Add(-time.Hour))
	r.run("a", exclusive, "--ca-file", ca, "--cert-file", cert, "--key-file", key).waitForLog("the certificate has expired")
}
