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

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// TestServe_LosesNoUpdateWhenPeersAreKilled checks that no acknowledged update is lost when peers are killed,
// that an update that is repeated with its request ID is applied once, and that peers reject a client with
// another secret.
func TestServe_LosesNoUpdateWhenPeersAreKilled(t *testing.T) {
	t.Parallel()
	all := []string{"a", "b", "c"}
	h := startPeers(t, all...)
	h.proposeUpdate("before")
	leader := h.waitForLeader().Leader.ID
	id := api.NewRequestID().String()
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
	// With a single peer of three, tail --once must fail after the lease of the peer has ended, because
	// the peer cannot know the last committed entry.
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
	h.requireFailure(cmdline.Failed, "this is the secret of peers, which clients must not have: clients need the secret of client-secret-file",
		"propose", "no", "--client-secret-file", filepath.Join(h.dir, "secret"))
}

// TestServe_NewPeerInSharedFileJoinsCluster checks that a new peer that replaces a dead peer in the
// configuration file of all peers does not start a second cluster, but exits.
func TestServe_NewPeerInSharedFileJoinsCluster(t *testing.T) {
	t.Parallel() // run in parallel, because this test waits most of the time
	h := startPeers(t, "a", "b", "c")
	one, _ := h.proposeUpdate("one")
	h.waitForApplied(one)
	h.killPeers("c")
	text, err := os.ReadFile(h.file)
	require.NoError(t, err)
	shared := filepath.Join(h.dir, "shared.yaml")
	edited := strings.ReplaceAll(string(text), "tcp://"+h.addressOf("c")+"/c", "tcp://"+h.addressOf("d")+"/d")
	require.NotEqual(t, string(text), edited)
	require.NoError(t, os.WriteFile(shared, []byte(edited), 0o600))
	original := h.file
	h.file = shared
	h.requireIdentityError("d", "created separately")

	// Stop the other peers, so that d starts without learning that the cluster already exists.
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

// certificateFlags returns the flags for a certificate of the authority for a host.
func certificateFlags(a *testenv.Authority, host string) []string {
	ca, cert, key := a.Files(host)
	return []string{"--ca-file", ca, "--cert-file", cert, "--key-file", key}
}

// newCertificateHarness returns a harness whose configuration file contains no secrets, for peers with
// certificates.
func newCertificateHarness(t *testing.T, founders ...string) *harness {
	h := newHarness(t, founders...)
	t.Setenv(secretVariable, "")
	text, err := os.ReadFile(h.file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(h.file, regexp.MustCompile(`(?m)^.*secret-file:.*\n`).ReplaceAll(text, nil), 0o600))
	return h
}

// TestServe_RequiresCertificateOfAuthority checks that peers accept a peer or command with a certificate of
// their authority, and that a command with a certificate of another authority, or without a complete
// certificate, fails.
func TestServe_RequiresCertificateOfAuthority(t *testing.T) {
	h := newCertificateHarness(t, "a", "b")
	ours, others := testenv.NewAuthority(t), testenv.NewAuthority(t)
	h.startPeer("a", certificateFlags(ours, "127.0.0.1")...)
	h.startPeer("b", certificateFlags(ours, "127.0.0.1")...)
	mine := certificateFlags(ours, "127.0.0.1")
	h.requireOutput(append([]string{"propose", "by certificate"}, mine...)...)
	h.waitForLeader(mine...)
	h.requireFailure(cmdline.Failed, "", append([]string{"propose", "no", "-t", "5s"}, certificateFlags(others, "127.0.0.1")...)...)
	h.requireFailure(cmdline.Usage, "set --client-secret-file", "propose", "no", "-k", secret, "-t", "5s")
	h.requireFailure(cmdline.Usage, "belong together", append([]string{"propose", "no"}, mine[:4]...)...)
}

// TestServe_UsesReplacedCertificatesWithoutRestart checks that peers log that their certificates have expired,
// and need no restart to use the certificates that replace them.
func TestServe_UsesReplacedCertificatesWithoutRestart(t *testing.T) {
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
		require.Eventually(t, func() bool { return strings.Contains(p.output.Text(), "the certificate has expired") }, timeLimit, 10*time.Millisecond)
		authority.WriteFiles(dirs[id], "127.0.0.1", now.Add(-time.Hour), now.Add(24*time.Hour))
	}
	h.waitForLeader(client...)
	h.requireOutput(append([]string{"propose", "after the replacement"}, client...)...)
}

// TestServe_RejectsCertificateWithOtherName checks that peers and commands reject a certificate of their
// authority whose name is not one of the allowed names.
func TestServe_RejectsCertificateWithOtherName(t *testing.T) {
	h := newCertificateHarness(t, "a")
	authority := testenv.NewAuthority(t)
	flags := func(name string) []string { return certificateFlags(authority, name) }
	h.startPeer("a", append(flags("127.0.0.1"), "--allowed-names", "127.0.0.1", "--allowed-client-names", "backup.example.org")...)
	h.requireOutput(append([]string{"propose", "yes"}, flags("backup.example.org")...)...)
	for _, name := range []string{"127.0.0.1", "billing.example.org"} {
		h.requireFailure(cmdline.Failed, "", append([]string{"propose", "no", "-t", "5s"}, flags(name)...)...)
	}
	h.requireFailure(cmdline.Failed, "not one of the allowed names other",
		append([]string{"propose", "no", "-t", "5s", "--allowed-names", "other"}, flags("backup.example.org")...)...)
	h.requireFailure(cmdline.Usage, "", "propose", "no", "-k", secret, "--allowed-names", "other")
}

// TestServe_StolenSecretsAreReplaced performs the steps of docs/raftlog.md after the theft of a machine that
// was a peer. No updates may be lost or rejected in between, no step may need a restart, and the machine must
// not have access after the steps, neither as a peer nor as a client.
func TestServe_StolenSecretsAreReplaced(t *testing.T) {
	t.Parallel()
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
	// The thief has the directory of d, the configuration and both secrets. Peer d does not run and is
	// omitted, so that the last attempt of each command reaches a peer that rejects it.
	stolen := filepath.Join(h.dir, "stolen.yaml")
	text := strings.NewReplacer("/secret\n", "/stolen-secret\n", "/client-secret\n", "/stolen-client-secret\n", fmt.Sprintf("  - {id: d, addr: %q}\n", h.addressOf("d")), "").Replace("join-timeout: 3s\n" + read("raftlog.yaml"))
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
			require.Eventually(t, func() bool { return strings.Count(p.output.Text(), "the secrets were replaced") >= 2*(i+1) }, timeLimit, 10*time.Millisecond, id)
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
	r := runProgram(t, nil, "serve", "-c", stolen, "--peer-id", "e", "--addr", h.addressOf("e"))
	require.Equal(t, cmdline.Failed, r.code, r.log)
	require.Contains(t, r.log, "the secret differs")
}

// TestServe_ExitCodeAllowsRestart checks that a second process in the directory of a peer, and a peer that
// aborts, do not exit with the code of wrong usage, after which supervisors would not start them again.
func TestServe_ExitCodeAllowsRestart(t *testing.T) {
	t.Parallel()
	h := startPeers(t, "a")
	second := h.runCommand("serve", "--peer-id", "a")
	require.Equal(t, cmdline.Failed, second.code, second.log)
	require.Contains(t, second.log, "in use by another peer")
	require.Equal(t, -1, h.peers["a"].stop(t, syscall.SIGABRT), "the signal must end the peer")
}
