//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestExecute_RejectsWrongUsage checks that a command with a wrong command line or file exits with code 2
// before it contacts a peer, and prints an error of one line that contains a part of a correct command line. No
// peer is running.
func TestExecute_RejectsWrongUsage(t *testing.T) {
	t.Setenv(secretVariable, "")
	dir := t.TempDir()
	file := func(text string) string {
		f, err := os.CreateTemp(dir, "")
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return f.Name()
	}
	withSecret := " -k secret-of-16-bytes"
	serve := "serve -c " + file("cluster: c\npeers: ['h:1/a']\ndir: "+dir+"/none\n")
	key := func(text string) string {
		return "status -1 --insecure -c " + file("cluster: c\npeers: ['h:1/a']\n"+text+"\n")
	}
	for args, want := range map[string]string{
		"x":                                 "see raftlog --help",
		"x --help":                          "see raftlog --help",
		"staus -1":                          "did you mean status?",
		"status --onse":                     "did you mean --once?",
		"serve a":                           "--peer-id a",
		"serve":                             "--peer-id a",
		serve + withSecret:                  "--peer-id a",
		serve + withSecret + " a":           "--peer-id a",
		serve + " --peer-id a":              "--secret-file, RAFTLOG_SECRET",
		serve + " --peer-id a -k secret":    "head -c 32",
		serve + withSecret + " --peer-id z": "--addr 10.0.0.1:8047",
		serve + withSecret + " --peer-id a --log-level loud": "one of debug",
		serve + withSecret + " --peer-id a --insecure":       "omit it",
		serve + " --peer-id a --secret-file /nowhere":        "--secret-file: stat /nowhere",
		serve + " --peer-id a --ca-file /nowhere":            "belong together",
		serve + withSecret + " --peer-id a --addr h":         `addr "h": must have the form host:port, such as`,
		serve + withSecret + " --peer-id a --addr :1":        `addr ":1": must have the form host:port, such as`,
		serve + withSecret + " --peer-id a --listen h:x":     `peer-listen "h:x": must have the form host:port, such as`,
		"serve -c /nowhere --peer-id a":                      "--config: open /nowhere",
		key("election-timeout: 1ms"):                         "such as 1s",
		key("heartbeat: 1s"):                                 "such as 0s",
		key("window: 1s"):                                    "such as 7h",
		key("join-timeout: -1s"):                             "such as 1m",
		key("max-data: 0"):                                   "such as 1048576",
		key("max-request-ids: -1"):                           "such as 20000000",
		key("addr: h"):                                       "such as 10.0.0.1:8047",
		key("listen: h"):                                     "such as 10.0.0.1:8047",
		key("peers: ['h:1/a', 'h:2/a']"):                     "is set in line 2 already",
		key("windov: 1h"):                                    `the nearest is "window"`,
		"status -1 --insecure -c " + file("cluster: c\npeers: ['h:1/a', 'h:2/a']"): "such as tcp://10.0.0.1:8047/a",
		"status -1 --insecure -c " + file("cluster: c\npeers: ['h:99999/a']"):      "for example tcp://10.0.0.1:8047/a",
		"config":                              "--client-secret-file, RAFTLOG_CLIENT_SECRET",
		"config h:1 --insecure":               "--cluster NAME",
		"config --cluster c --insecure":       "such as 10.0.0.1:8047",
		"config --cluster c --insecure h":     "for example tcp://10.0.0.1:8047/a",
		"config --add h:1 --replace h:2":      "--replace lists all peers",
		"config --add h":                      "for example tcp://10.0.0.1:8047/a",
		"config --add=":                       "such as --add tcp://10.0.0.1:8047/a",
		"config --replace=":                   "such as --replace tcp://10.0.0.1:8047/a",
		"config --request-id 12":              "an example is",
		"config --wait 0s":                    "such as 2m",
		"config -t 0":                         "such as 2s",
		"config --nothing":                    "see raftlog config --help",
		"propose":                             "such as 'an update'",
		"propose a b":                         "such as 'an update'",
		"propose --request-id zz a":           "an example is",
		"tail --format xml --cluster c h:1":   "text, hex or json",
		"tail --cluster c -k short h:1":       "set --client-secret-file",
		"status -i 1ms":                       "such as 1s",
		"compact":                             "such as -d /var/lib/raftlog",
		"compact -d /nowhere -t x":            "is not the directory of a peer",
		"compact -d /nowhere -t x --wait -1s": "an example is 1m",
		"dump":                                "such as /var/lib/raftlog",
		"dump -i x /nowhere":                  "an example is 1-10,20,30-",
		"dump /nowhere":                       "is not the directory of a peer",
		"dump --format x /nowhere":            "text, hex or json",
		"list /nowhere":                       "is not the directory of a peer",
		"inspect /nowhere":                    "no such file",
		"recover --addr h /nowhere":           "such as 10.0.0.1:8047",
		"restore -d x f":                      "such as --peer-id a",
		"restore -d x --peer-id a f":          "such as --addr 10.0.0.1:8047",
		"restore -d x --peer-id a --addr h f": "such as 10.0.0.1:8047",
		"restore -d x":                        "the file of raftlog export is missing",
		"defaults x":                          "unexpected argument",
		"list a b":                            "unexpected argument",
		"status -c /no\x1b[2Jfile":            `open /no\x1b[2Jfile: no such file`,
	} {
		var log strings.Builder
		require.Equal(t, cmdline.Usage, execute(strings.Fields(args), nil, io.Discard, &log), "%s: %s", args, log.String())
		require.Regexp(t, `^raftlog: [[:print:]]*\n$`, log.String(), args)
		require.Contains(t, log.String(), want, args)
	}
}

// TestExecute_ErrorNamesMissingSettings checks that the error of a command that lacks a setting names the flags
// and keys that can contain it.
func TestExecute_ErrorNamesMissingSettings(t *testing.T) {
	t.Setenv(secretVariable, "")
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	bare := file("bare", "cluster: c\ninsecure: true\ndir: "+dir+"/{id}\n")
	createPeer(t, dir)
	for args, want := range map[string]string{
		"serve -c " + bare + " --addr h:1 --peer-id a":                                      "set peers in the file of -c",
		"serve --addr h:1 --peer-id a":                                                      "--cluster",
		"serve -c " + file("one", "cluster: c\npeers: [h:1/a]") + " --insecure --peer-id a": "set dir in the file of -c, or -d",
		"propose -c " + bare + " x":                                                         "set peers in the file of -c\n",
		"status -c " + bare:                                                                 "or give the address of one",
		"compact -c " + bare + " -d " + dir + " -t x":                                       "or give -p with an address",
		"compact -c " + bare + " -t x":                                                      "--peer-id a",
		"dump -c " + bare:                                                                   "--peer-id a",
		"list " + bare:                                                                      "is not the directory of a peer",
		"dump " + bare:                                                                      "is not the directory of a peer",
	} {
		var log strings.Builder
		require.Equal(t, cmdline.Usage, execute(strings.Fields(args), nil, io.Discard, &log), "%s: %s", args, log.String())
		require.Contains(t, strings.ToLower(log.String()), strings.ToLower(want), args)
	}
}

// TestExecute_ExitsWithZeroAfterSignal checks that commands that run until a signal, such as serve, tail and
// status, exit with code 0 when they receive it.
func TestExecute_ExitsWithZeroAfterSignal(t *testing.T) {
	t.Parallel()
	h := newHarness(t, "a")
	// A peer that receives the signal while it joins must exit as well.
	joining := h.startCommand("serve", "--addr", h.addressOf("b"), "--log-level", "debug", "--peer-id", "b")
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(h.dir, "b", "peer.json"))
		return err == nil
	}, timeLimit, 10*time.Millisecond)
	require.Zero(t, joining.stop(t, syscall.SIGINT))
	joining.waitForLine(t, "stopped while starting")

	h.startPeer("a")
	tail := h.startCommand("tail")
	status := h.startCommand("status", "-i", "100ms")
	propose := exec.Command(program, "propose", "-c", h.file, "-")
	propose.Stdin = strings.NewReader("from standard input\n")
	out, err := propose.Output()
	require.NoError(t, err)
	index, _, _ := strings.Cut(string(out), " ")
	require.True(t, strings.HasPrefix(tail.waitForLine(t, `"from standard input\n"`), index+" "))
	for range 3 {
		require.NotContains(t, status.waitForLine(t, "cluster test, "), "\x1b")
	}
	// Let compact query the peer, because the files do not record yet that the newest entry is
	// committed.
	h.requireOutput("compact", "--peer-id", "a", "-i", index, "-p", "a")
	require.Zero(t, tail.stop(t, syscall.SIGINT))
	status.waitForLine(t, "leader a")
	require.Zero(t, status.stop(t, syscall.SIGINT))
}
