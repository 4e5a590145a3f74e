//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/requestid"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestServe_KilledPeers fails if an acknowledged update is lost when peers are killed, if a
// repeated one is applied twice, or if a client with another secret is accepted.
func TestServe_KilledPeers(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c"}
	h := startPeers(t, all...)
	h.proposeUpdate("before")
	leader := h.waitForLeader().Leader.ID
	id := requestid.New().String()
	done := make(chan result, 1)
	go func() {
		defer close(done)
		done <- h.runCommand("propose", "--request-id", id, "while the leader is killed")
	}()
	h.peers[leader].stop(t, syscall.SIGKILL)
	r := <-done
	require.Zero(t, r.code, r.log)
	require.Equal(t, r.out, h.requireOutput("propose", "--request-id", id, "while the leader is killed"), "the same result as the first time")
	h.acknowledged[strings.Fields(r.out)[0]] = "while the leader is killed"
	require.NotEqual(t, leader, h.waitForLeader().Leader.ID)
	h.proposeUpdate("by two")

	left := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == leader })
	h.peers[left[0]].stop(t, syscall.SIGKILL)
	// A single peer of three does not know the last committed entry, once its lease has ended.
	for limit := time.Now().Add(timeLimit); ; {
		if alone := h.runCommand("tail", "--once", "-t", "500ms"); alone.code != 0 {
			require.Equal(t, cmdline.Failed, alone.code, alone.log)
			break
		}
		require.True(t, time.Now().Before(limit), "tail --once succeeds without a majority")
	}
	h.peers[left[1]].stop(t, syscall.SIGKILL)
	for _, id := range all {
		h.startPeer(id)
	}
	h.waitForLeader()
	h.requireLog("tail", "--once")
	require.Equal(t, r.out, h.requireOutput("propose", "--request-id", id, "while the leader is killed"), "request IDs are known")
	h.proposeUpdate("after all")
	h.requireLog("tail", "--once")

	// A client with another secret is rejected.
	r = runProgram(t, []string{clientSecretVariable + "=another-secret-of-no-use"}, "propose", "-c", h.file, "no")
	require.Equal(t, cmdline.Failed, r.code)
	require.Contains(t, r.log, "refused")
	require.NotContains(t, r.log, "another-secret")
	r = h.runCommand("propose", "no", "--client-secret-file", filepath.Join(h.dir, "secret"))
	require.Equal(t, cmdline.Failed, r.code)
	require.Contains(t, r.log, "this is the secret of peers, which clients must not have: clients need the secret of client-secret-file")
}

// TestServe_LostData fails if a peer that has lost its directory, its log, or recent data
// participates after a restart of all peers, or if an acknowledged update is lost.
func TestServe_LostData(t *testing.T) {
	for name, test := range map[string]struct {
		lose    func(t *testing.T, h *harness, dir string)
		message string
		voter   bool // the peer has entries, so that only a majority of the voters can stop it
	}{
		"directory": {func(t *testing.T, _ *harness, dir string) {
			require.NoError(t, os.RemoveAll(dir))
		}, "does not have the data of its ID", false},
		"log": {func(t *testing.T, _ *harness, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "log")))
		}, "was lost", false},
		"last state": {func(t *testing.T, h *harness, dir string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(h.dir, "earlier"))))
		}, "restored to an earlier state", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startPeers(t, "a", "b", "c")
			one, _ := h.proposeUpdate("one, at all three")
			h.waitForApplied(one)
			h.killPeers("b")
			require.NoError(t, os.CopyFS(filepath.Join(h.dir, "earlier"), os.DirFS(h.dataDir("b"))))
			// The connection to c may be logged before or after the line for which start waits.
			b := h.startPeer("b")
			require.Eventually(t, func() bool {
				return strings.Contains(b.output.text(), `connected to peer" cluster=test peer=b remote=c`)
			}, timeLimit, 10*time.Millisecond)
			h.killPeers("c")
			h.proposeUpdate("two, acknowledged by a and b")
			h.proposeUpdate("three, acknowledged by a and b")
			h.killPeers("a", "b")
			test.lose(t, h, h.dataDir("b"))
			h.startPeer("c")
			if test.voter {
				b = h.startPeer("b")
				b.waitForLine(t, "another peer refuses this one")
			} else {
				h.requireIdentityError("b", test.message)
			}
			r := h.runCommand("propose", "-t", "1s", "four")
			require.NotZero(t, r.code, "c has acknowledged an update without a majority")
			h.startPeer("a")
			if test.voter {
				require.Contains(t, b.waitForLine(t, "this peer must not participate in the cluster"), test.message)
				_ = b.cmd.Wait()
				require.Equal(t, cmdline.Identity, b.cmd.ProcessState.ExitCode())
			}
			h.proposeUpdate("five, acknowledged by a and c")
			// c may have appended "four", which is not acknowledged.
			h.requireAcknowledged()
		})
	}
}

// TestServe_ReplacedInSharedFile fails if a new peer, which replaces a dead peer in the
// configuration file of all peers, starts a second cluster.
func TestServe_ReplacedInSharedFile(t *testing.T) {
	t.Parallel() // the test mostly waits
	h := startPeers(t, "a", "b", "c")
	one, _ := h.proposeUpdate("one")
	h.waitForApplied(one)
	h.killPeers("c")
	text, err := os.ReadFile(h.file)
	require.NoError(t, err)
	shared := filepath.Join(h.dir, "shared.yaml")
	edited := strings.ReplaceAll(string(text), "tcp://"+h.address("c")+"/c", "tcp://"+h.address("d")+"/d")
	require.NotEqual(t, string(text), edited)
	require.NoError(t, os.WriteFile(shared, []byte(edited), 0o600))
	original := h.file
	h.file = shared
	h.requireIdentityError("d", "created separately")

	// The other peers are down, so d does not learn that the cluster exists.
	h.killPeers("a", "b")
	d := h.startPeer("d")
	h.startPeer("a")
	require.Equal(t, cmdline.Identity, d.stop(t, syscall.Signal(0)))
	d.waitForLine(t, "created separately")
	h.startPeer("b")
	h.file = original
	h.proposeUpdate("two")
	h.startPeer("c")
	h.proposeUpdate("three")
	h.requireLog("tail", "--once")
}

// TestServe_CopiedDirectory fails if a second process participates with a copy of the directory of
// a running peer, or stops this peer.
func TestServe_CopiedDirectory(t *testing.T) {
	t.Parallel()
	h := startPeers(t, "a", "b", "c")
	one, _ := h.proposeUpdate("one")
	h.waitForApplied(one)
	dir := filepath.Join(h.dir, "copy")
	require.NoError(t, os.CopyFS(dir, os.DirFS(h.dataDir("b"))))
	h.requireIdentityError("b", "another process that uses the same ID", "-d", dir, "--listen", "127.0.0.1:0")
	h.killPeers("c")
	h.proposeUpdate("two, acknowledged by a and b")
	h.requireLog("tail", "--once")
}

// TestServe_NewAddress fails if a peer is not reached at its new address after the configuration
// file was changed.
func TestServe_NewAddress(t *testing.T) {
	t.Parallel()
	h := startPeers(t, "a", "b", "c")
	last, _ := h.proposeUpdate("one")
	h.waitForApplied(last)
	h.killPeers("b")
	was, now := h.address("b"), h.address("b at another address")
	text, err := os.ReadFile(h.file)
	require.NoError(t, err)
	require.Contains(t, string(text), was)
	require.NoError(t, os.WriteFile(h.file, []byte(strings.ReplaceAll(string(text), was, now)), 0o600))
	h.startPeer("b")
	require.Eventually(t, func() bool {
		r := h.runCommand("config")
		return strings.Contains(r.out, "tcp://"+now+"/b") && !strings.Contains(r.out, was)
	}, timeLimit, 100*time.Millisecond)
	h.killPeers("c")
	h.proposeUpdate("two, by a and b")
	h.requireLog("tail", "--once")
}

// certificateFlags returns the flags for a certificate of the authority for a host.
func certificateFlags(a *testenv.Authority, host string) []string {
	ca, cert, key := a.Files(host)
	return []string{"--ca-file", ca, "--cert-file", cert, "--key-file", key}
}

// newCertificateHarness returns a harness without secrets.
func newCertificateHarness(t *testing.T, founders ...string) *harness {
	h := newHarness(t, founders...)
	t.Setenv(secretVariable, "")
	text, err := os.ReadFile(h.file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.file, regexp.MustCompile(`(?m)^.*secret-file:.*\n`).ReplaceAll(text, nil), 0o600))
	return h
}

// TestServe_Certificates fails if a peer or a command with a certificate of the authority is
// rejected, or one without is accepted.
func TestServe_Certificates(t *testing.T) {
	h := newCertificateHarness(t, "a", "b")
	ours, others := testenv.NewAuthority(t), testenv.NewAuthority(t)
	h.startPeer("a", certificateFlags(ours, "127.0.0.1")...)
	h.startPeer("b", certificateFlags(ours, "127.0.0.1")...)
	mine := certificateFlags(ours, "127.0.0.1")
	h.requireOutput(append([]string{"propose", "by certificate"}, mine...)...)
	h.waitForLeader(mine...)
	r := h.runCommand(append([]string{"propose", "no", "-t", "5s"}, certificateFlags(others, "127.0.0.1")...)...)
	require.Equal(t, cmdline.Failed, r.code, r.log)
	r = h.runCommand("propose", "no", "-k", secret, "-t", "5s")
	require.Equal(t, cmdline.Usage, r.code, r.log)
	require.Contains(t, r.log, "set --client-secret-file")
	r = h.runCommand(append([]string{"propose", "no"}, mine[:4]...)...)
	require.Equal(t, cmdline.Usage, r.code, r.log)
	require.Contains(t, r.log, "belong together")
}

// TestServe_ReplacedCertificates fails if peers do not log that their certificates have expired, or if
// they need a restart to use the certificates that replace them.
func TestServe_ReplacedCertificates(t *testing.T) {
	h := newCertificateHarness(t, "a", "b")
	authority := testenv.NewAuthority(t)
	client := certificateFlags(authority, "127.0.0.1")
	now := time.Now()
	peers, dirs := map[string]*process{}, map[string]string{}
	for _, id := range []string{"a", "b"} {
		dirs[id] = t.TempDir()
		ca, cert, key := authority.WriteFiles(dirs[id], "127.0.0.1", now.Add(-2*time.Hour), now.Add(-time.Hour))
		peers[id] = h.startPeer(id, "--ca-file", ca, "--cert-file", cert, "--key-file", key)
	}
	for id, p := range peers {
		require.Eventually(t, func() bool { return strings.Contains(p.output.text(), "the certificate has expired") }, timeLimit, 10*time.Millisecond)
		authority.WriteFiles(dirs[id], "127.0.0.1", now.Add(-time.Hour), now.Add(24*time.Hour))
	}
	h.waitForLeader(client...)
	h.requireOutput(append([]string{"propose", "after the replacement"}, client...)...)
}

// TestServe_AllowedNames fails if a certificate of the authority is accepted although its name is
// not allowed.
func TestServe_AllowedNames(t *testing.T) {
	h := newCertificateHarness(t, "a")
	authority := testenv.NewAuthority(t)
	flags := func(name string) []string { return certificateFlags(authority, name) }
	h.startPeer("a", append(flags("127.0.0.1"), "--allowed-names", "127.0.0.1", "--allowed-client-names", "backup.example.org")...)
	h.requireOutput(append([]string{"propose", "yes"}, flags("backup.example.org")...)...)
	peer := h.runCommand(append([]string{"propose", "no", "-t", "5s"}, flags("127.0.0.1")...)...)
	require.Equal(t, cmdline.Failed, peer.code, peer.log)
	r := h.runCommand(append([]string{"propose", "no", "-t", "5s"}, flags("billing.example.org")...)...)
	require.Equal(t, cmdline.Failed, r.code, r.log)
	r = h.runCommand(append([]string{"propose", "no", "-t", "5s", "--allowed-names", "other"}, flags("backup.example.org")...)...)
	require.Equal(t, cmdline.Failed, r.code, r.log)
	require.Contains(t, r.log, "not one of the allowed names other")
	r = h.runCommand("propose", "no", "-k", secret, "--allowed-names", "other")
	require.Equal(t, cmdline.Usage, r.code, r.log)
}

// TestServe_StolenSecrets performs the steps of docs/raftlog.md after the theft of a machine that was a
// peer. It fails if updates are lost or rejected in between, a step needs a restart, or the machine
// has access afterwards, as a peer or as a client.
func TestServe_StolenSecrets(t *testing.T) {
	h := startPeers(t, "a", "b", "c", "d")
	h.waitForLeader()
	h.proposeUpdate("before")
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(h.dir, name))
		require.NoError(t, err)
		return string(text)
	}
	replace := func(name, text string) {
		file := filepath.Join(h.dir, name)
		require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	// The thief has the directory of d, the configuration and both secrets. Without d, which does not run, the
	// last attempt of each command reaches a peer that rejects it.
	stolen := filepath.Join(h.dir, "stolen.yaml")
	text := strings.NewReplacer("/secret\n", "/stolen-secret\n", "/client-secret\n", "/stolen-client-secret\n", fmt.Sprintf("  - {id: d, addr: %q}\n", h.address("d")), "").Replace("join-timeout: 3s\n" + read("raftlog.yaml"))
	require.NoError(t, os.WriteFile(stolen, []byte(text), 0o600))
	replace("stolen-secret", read("secret"))
	replace("stolen-client-secret", read("client-secret"))
	h.killPeers("d")
	delete(h.peers, "d")
	h.requireOutput("config", "--delete", "d")

	oldSecret, oldClient := read("secret"), read("client-secret")
	newSecret, newClient := "not-to-be-shown-any-more-1\n", "not-to-be-shown-any-more-2\n"
	for i, step := range [][2]string{
		{oldSecret + newSecret, oldClient + newClient},
		{newSecret + oldSecret, newClient + oldClient},
		{newSecret, newClient},
	} {
		replace("secret", step[0])
		replace("client-secret", step[1])
		for id, p := range h.peers {
			require.Eventually(t, func() bool { return strings.Count(p.output.text(), "the secrets were replaced") >= 2*(i+1) }, timeLimit, 10*time.Millisecond, id)
		}
		h.waitForLeader()
		h.proposeUpdate(fmt.Sprint("after step ", i))
	}
	h.requireLog("tail", "--once")

	for _, args := range [][]string{{"status", "--once"}, {"propose", "no", "-t", "5s"}} {
		r := runProgram(t, nil, append(args, "-c", stolen)...)
		require.Equal(t, cmdline.Failed, r.code, r.log)
		require.Contains(t, r.out+r.log, "the secret differs")
	}
	r := runProgram(t, nil, "serve", "-c", stolen, "--peer-id", "e", "--addr", h.address("e"))
	require.Equal(t, cmdline.Failed, r.code, r.log)
	require.Contains(t, r.log, "the secret differs")
}
