//go:build unix

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
	"github.com/go-leaderelection/leaderelection/internal/testenv"
)

// program is the path of the program that the end-to-end tests run.
var program string

func TestMain(m *testing.M) {
	var exit func(int)
	program, exit = testenv.BuildCommand()
	goleak.VerifyTestMain(m, goleak.Cleanup(exit))
}

const (
	timeLimit = 20 * time.Second
	// The output of the commands must contain neither of these secrets.
	secret       = "not-to-be-shown-0123456789"
	clientSecret = "not-to-be-shown-to-anyone"
)

// harness is a cluster of processes that share a configuration file.
type harness struct {
	t         *testing.T
	dir, file string
	addresses map[string]string
	peers     map[string]*process
	// acknowledged contains the acknowledged updates by index.
	acknowledged map[string]string
}

// newHarness returns a harness whose files are in memory if the system has a file system in memory, because one
// sync of a busy disk may take longer than an election timeout. A process that is killed does not lose these
// files.
func newHarness(t *testing.T, founders ...string) *harness {
	dir, err := testenv.MakeDir("raftlog")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	h := &harness{t: t, dir: dir, addresses: map[string]string{}, peers: map[string]*process{}, acknowledged: map[string]string{}}
	h.file = filepath.Join(h.dir, "raftlog.yaml")
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "secret"), []byte(secret+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "client-secret"), []byte(clientSecret+"\n"), 0o600))
	var b strings.Builder
	fmt.Fprintf(&b, "cluster: test\ndir: %s/{id}\ncompact-file: %s/{id}/compact/snap.new\nsecret-file: %s/secret\nclient-secret-file: %s/client-secret\nelection-timeout: 1s\npeers:\n",
		h.dir, h.dir, h.dir, h.dir)
	for i, id := range founders {
		if i%2 == 0 {
			fmt.Fprintf(&b, "  - tcp://%s/%s\n", h.addressOf(id), id)
		} else {
			fmt.Fprintf(&b, "  - {id: %s, addr: %q}\n", id, h.addressOf(id))
		}
	}
	require.NoError(t, os.WriteFile(h.file, []byte(b.String()), 0o600))
	return h
}

// startPeers returns a harness whose founders are running.
func startPeers(t *testing.T, founders ...string) *harness {
	t.Helper()
	h := newHarness(t, founders...)
	for _, id := range founders {
		h.startPeer(id)
	}
	return h
}

// addressOf returns the address of a peer, which does not change.
func (h *harness) addressOf(id string) string {
	h.t.Helper()
	if h.addresses[id] == "" {
		port, err := testenv.ReservePort()
		require.NoError(h.t, err)
		h.t.Cleanup(port.Release)
		h.addresses[id] = fmt.Sprintf("127.0.0.1:%d", port.Number)
	}
	return h.addresses[id]
}

// process is a running or exited process of the program, with its output.
type process struct {
	cmd    *exec.Cmd
	output *testenv.Output
}

// startCommand starts a command with the configuration file.
func (h *harness) startCommand(args ...string) *process {
	h.t.Helper()
	return h.startPrepared(nil, args...)
}

// startPrepared starts a command with the configuration file. Before the start it calls prepare, unless that is
// nil, to change the command.
func (h *harness) startPrepared(prepare func(*exec.Cmd), args ...string) *process {
	h.t.Helper()
	p := &process{cmd: exec.Command(program, append([]string{args[0], "-c", h.file}, args[1:]...)...)}
	r, w, err := os.Pipe()
	require.NoError(h.t, err)
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if prepare != nil {
		prepare(p.cmd)
	}
	require.NoError(h.t, p.cmd.Start())
	w.Close()
	p.output = testenv.NewOutput(r)
	h.t.Cleanup(func() {
		if !p.hasExited() {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		p.output.WaitForEnd(h.t, timeLimit)
		text := p.output.Text()
		if h.t.Failed() {
			h.t.Logf("%s\n%s", strings.Join(args, " "), text)
		}
		require.NotContains(h.t, text, secret)
		require.NotContains(h.t, text, clientSecret)
	})
	return p
}

// startPeer starts a peer, and waits until it listens.
func (h *harness) startPeer(id string, args ...string) *process {
	h.t.Helper()
	p := h.startCommand(append([]string{"serve", "--peer-id", id}, args...)...)
	h.peers[id] = p
	p.output.WaitForText(h.t, timeLimit, "msg=listening")
	return p
}

func (p *process) hasExited() bool { return p.cmd.ProcessState != nil }

// waitForLine waits for a line of output that contains text, and returns it.
func (p *process) waitForLine(t *testing.T, text string) string {
	t.Helper()
	return p.output.WaitForLine(t, timeLimit, text, func(line string) bool { return strings.Contains(line, text) })
}

// stop sends a signal, waits until the process exits, and returns the exit code. Signal 0 only waits.
func (p *process) stop(t *testing.T, sig syscall.Signal) int {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(sig))
	limit := time.AfterFunc(timeLimit, func() { _ = p.cmd.Process.Kill() })
	defer limit.Stop()
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// result is the result of a command.
type result struct {
	code     int
	out, log string
	duration time.Duration
}

// runCommand runs a command with the configuration file until it exits.
func (h *harness) runCommand(args ...string) result {
	h.t.Helper()
	return runProgram(h.t, nil, append([]string{args[0], "-c", h.file}, args[1:]...)...)
}

// requireOutput runs a command that must succeed, and returns its output.
func (h *harness) requireOutput(args ...string) string {
	h.t.Helper()
	r := h.runCommand(args...)
	require.Zero(h.t, r.code, "%s: %s", strings.Join(args, " "), r.log)
	return r.out
}

// requireFailure runs a command, and requires that it exits with the given code and that its log contains the
// text logged.
func (h *harness) requireFailure(code int, logged string, args ...string) {
	h.t.Helper()
	r := h.runCommand(args...)
	require.Equal(h.t, code, r.code, "%s: %s", strings.Join(args, " "), r.log)
	require.Contains(h.t, r.log, logged)
}

// runProgram runs the program until it exits.
func runProgram(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := exec.Command(program, args...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.Env = append(os.Environ(), env...)
	start := time.Now()
	require.NoError(t, cmd.Start())
	limit := time.AfterFunc(2*timeLimit, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	_ = cmd.Wait()
	r := result{cmd.ProcessState.ExitCode(), out.String(), log.String(), time.Since(start)}
	require.NotContains(t, r.out+r.log, secret)
	require.NotContains(t, r.out+r.log, clientSecret)
	return r
}

// waitForLeader runs the command status until its report contains a leader, and returns the report.
func (h *harness) waitForLeader(args ...string) report {
	h.t.Helper()
	for limit := time.Now().Add(timeLimit); ; {
		r := h.runCommand(append([]string{"status", "--once", "--json"}, args...)...)
		var s report
		require.NoError(h.t, json.Unmarshal([]byte(r.out), &s), r.log)
		if r.code == 0 {
			return s
		}
		// Before a peer listens, the command exits with Failed.
		require.Contains(h.t, []int{cmdline.NoLeader, cmdline.Failed}, r.code, r.log)
		require.True(h.t, time.Now().Before(limit), "no leader: %s", r.out)
	}
}

// waitForApplied waits until all running peers have applied the entry. The peer that has confirmed the
// entry has applied it, but other peers, which commands may query, apply it later.
func (h *harness) waitForApplied(index string) {
	h.t.Helper()
	want, err := strconv.ParseUint(index, 10, 64)
	require.NoError(h.t, err)
	for limit := time.Now().Add(timeLimit); ; {
		s := h.waitForLeader()
		late := slices.Collect(maps.Keys(h.peers))
		late = slices.DeleteFunc(late, func(id string) bool {
			return h.peers[id].hasExited() || slices.ContainsFunc(s.Peers, func(p peerReport) bool {
				return p.Peer.ID == id && p.Info != nil && p.Info.LastApplied >= want
			})
		})
		if len(late) == 0 {
			return
		}
		require.True(h.t, time.Now().Before(limit), "%v have not applied entry %s: %+v", late, index, s.Peers)
	}
}

// proposeUpdate proposes an update, and adds it to acknowledged.
func (h *harness) proposeUpdate(data string) (index, id string) {
	h.t.Helper()
	index, id, ok := strings.Cut(strings.TrimSpace(h.requireOutput("propose", data)), " ")
	require.True(h.t, ok)
	h.acknowledged[index] = data
	return index, id
}

// requireLog requires that the log contains exactly the acknowledged updates, with their indexes.
func (h *harness) requireLog(args ...string) {
	h.t.Helper()
	newest := slices.MaxFunc(slices.Collect(maps.Keys(h.acknowledged)), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	h.waitForApplied(newest)
	found := map[string]string{}
	for text := range strings.Lines(h.requireOutput(append(args, "--format", "json")...)) {
		var l jsonEntry
		require.NoError(h.t, json.Unmarshal([]byte(text), &l))
		if l.Kind == "STATE" && !l.Skipped {
			require.False(h.t, slices.Contains(slices.Collect(maps.Values(found)), *l.Data), "%q was applied twice", *l.Data)
			found[fmt.Sprint(l.Index)] = *l.Data
		}
	}
	require.Equal(h.t, h.acknowledged, found)
}

// peerIDs returns the sorted IDs of the peers.
func peerIDs(peers []peerReport) (all []string) {
	for _, p := range peers {
		all = append(all, p.Peer.ID)
	}
	slices.Sort(all)
	return all
}

// requireIdentityError runs a peer, and requires that it exits with the code cmdline.Identity and an error of
// one line that contains the message.
func (h *harness) requireIdentityError(id, message string, args ...string) {
	h.t.Helper()
	r := h.runCommand(append([]string{"serve", "--peer-id", id}, args...)...)
	require.Equal(h.t, cmdline.Identity, r.code, r.log)
	lines := strings.Split(strings.TrimSpace(r.log), "\n")
	last := lines[len(lines)-1]
	require.True(h.t, strings.HasPrefix(last, "raftlog: this peer must not participate in the cluster: "), r.log)
	require.Contains(h.t, last, message)
}

// killPeers kills the processes of peers, and waits until they have exited.
func (h *harness) killPeers(ids ...string) {
	h.t.Helper()
	for _, id := range ids {
		h.peers[id].stop(h.t, syscall.SIGKILL)
	}
}

// dataDir returns the directory of a peer.
func (h *harness) dataDir(id string) string { return filepath.Join(h.dir, id) }

// writeConfig writes a configuration file that lists the given peers, and returns its name.
func (h *harness) writeConfig(ids ...string) string {
	h.t.Helper()
	text, err := os.ReadFile(h.file)
	require.NoError(h.t, err)
	before, _, _ := strings.Cut(string(text), "peers:\n")
	var b strings.Builder
	b.WriteString(before + "peers:\n")
	for _, id := range ids {
		b.WriteString("  - tcp://" + h.addressOf(id) + "/" + id + "\n")
	}
	name := filepath.Join(h.dir, strings.Join(ids, "")+".yaml")
	require.NoError(h.t, os.WriteFile(name, []byte(b.String()), 0o600))
	return name
}

// createPeer creates, in dir, the data of peer a of cluster c.
func createPeer(t *testing.T, dir string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	self := api.Peer{ID: "a", Addr: listener.Addr().String()}
	node, err := raftlog.Open(raftlog.Config{Cluster: "c", ID: self.ID, Addr: self.Addr, Listener: listener, Dir: dir, Peers: []api.Peer{self}, Insecure: true})
	require.NoError(t, err)
	require.NoError(t, node.Close())
}
