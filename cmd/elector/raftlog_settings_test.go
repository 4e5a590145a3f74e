//go:build unix && !no_raftlog

package main

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestRaftlog_RejectsInvalidSettings checks that elector rejects invalid settings of a peer before it creates files,
// and does not print the secret.
func TestRaftlog_RejectsInvalidSettings(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	secret, short := write("secret", strings.Repeat("s", 16)+"\n"), write("short", strings.Repeat("s", 15)+"\n")
	shared := write("shared", strings.Repeat("s", 16)+"\n")
	require.NoError(t, os.Chmod(shared, 0o662))
	data := filepath.Join(dir, "data")
	good := map[string]string{"peers": "a=h:1,b=h:2", "peer-id": "a", "dir": data, "secret-file": secret}
	for _, bad := range []struct{ flag, value, want string }{
		{"peers", "", "--peers is required"},
		{"peers", "a", "id=host:port"},
		{"peers", "a=h", "id=host:port"},
		{"peers", "=h:1", "the ID is missing"},
		{"peers", "a=:1", "other peers cannot reach this host"},
		{"peers", "a=h:1,a=h:2", "the same ID or address"},
		{"peers", "a=h:1,b=h:1", "the same ID or address"},
		{"peer-id", "", "--peer-id is required"},
		{"peer-id", "c", "not one of --peers"},
		{"dir", "", "--dir is required"},
		{"cluster", "", "--cluster"},
		{"peer-listen", "h", "--peer-listen"},
		{"session-timeout", "99ms", "--session-timeout"},
		{"session-timeout", "61m", "--session-timeout"},
		{"lost-grace", "600ms", "--lost-grace"},
		{"secret-file", "", "peer authentication required"},
		{"secret-file", filepath.Join(dir, "none"), "--secret-file"},
		{"secret-file", short, "15 bytes"},
		{"secret-file", shared, "--secret-file: " + shared + " has mode 0662"},
		{"secret", strings.Repeat("x", 20), "set only one of them"},
		{"insecure", "true", "--insecure is not compatible"},
		{"cert-file", "none", "belong together"},
		{"tls", "true", "belong together"},
		{"allowed-names", "x", "--allowed-names and --allowed-client-names restrict certificates"},
		{"allowed-client-names", "x", "--allowed-names and --allowed-client-names restrict certificates"},
		{"client-secret-file", secret, "the same secret"},
		{"client-secret-file", short, "--client-secret-file: " + short + ": a secret has 15 bytes"},
		{"value", strings.Repeat("v", 1023), "exceed the limit of 1024"},
	} {
		flags := maps.Clone(good)
		flags[bad.flag] = bad.value
		args := []string{"run", "--backend", "raftlog", "--leader-begin-command", "x"}
		for name, value := range flags {
			args = append(args, "--"+name+"="+value)
		}
		_, err := executeLine(args...)
		require.ErrorContains(t, err, bad.want, "--%s=%s", bad.flag, bad.value)
		require.Equal(t, cmdline.Usage, exitCode(err), "--%s=%s: %v", bad.flag, bad.value, err)
		require.NotContains(t, err.Error(), "xxxx", "the error contains the secret")
		require.NoDirExists(t, data)
	}
	// A peer with a secret of clients also needs a secret of peers.
	_, err := executeLine("run", "--backend", "raftlog", "--leader-begin-command", "x", "--peers", good["peers"],
		"--peer-id", "a", "--dir", data, "--client-secret-file", secret)
	require.ErrorContains(t, err, "none of peers")
	// Other commands are clients: they require neither --peer-id nor --dir, and do not use the secret of peers.
	for _, command := range []string{"status", "watch", "resign"} {
		for flags, want := range map[string]string{
			"":                         "--peers is required",
			"--peers=a":                "id=host:port",
			"--peers=" + good["peers"]: "set --client-secret-file, ELECTOR_CLIENT_SECRET",
			"--peers=" + good["peers"] + " --secret-file=/nowhere":        "the secret of peers is not valid for clients: set --client-secret-file",
			"--peers=" + good["peers"] + " --client-secret-file=" + short: "15 bytes",
		} {
			_, err := executeLine(append([]string{command, "--backend", "raftlog"}, strings.Fields(flags)...)...)
			require.ErrorContains(t, err, want, "%s %v", command, flags)
			require.Equal(t, cmdline.Usage, exitCode(err), "%s %v", command, flags)
		}
	}
}

// TestRaftlog_ReadsSettingsFromFileAndVariables checks that elector applies each raftlog key of the configuration
// file and the variables of the two secrets, and warns once of a secret that all users can read.
func TestRaftlog_ReadsSettingsFromFileAndVariables(t *testing.T) {
	t.Setenv("ELECTOR_SECRET", strings.Repeat("x", 16))
	t.Setenv("ELECTOR_CLIENT_SECRET", strings.Repeat("z", 16))
	dir := t.TempDir()
	file := filepath.Join(dir, "elector.yaml")
	require.NoError(t, os.WriteFile(file, []byte("backend: raftlog\npeers: a=h:1,b=h:2\npeer-id: b\npeer-listen: 0.0.0.0:2\ndata: "+dir+"\n"), 0o600))
	s, _, err := parse(t, "run", "--config", file)
	require.NoError(t, err)
	c, err := s.raftlogPeerConfig()
	require.NoError(t, err)
	require.Equal(t, "h:2", c.Addr)
	require.Equal(t, "0.0.0.0:2", c.Listen)
	require.Equal(t, "elector", c.Cluster)
	require.Equal(t, api.Secrets{Peers: [][]byte{[]byte(strings.Repeat("x", 16))}, Clients: [][]byte{[]byte(strings.Repeat("z", 16))}}, c.Secrets())
	require.Equal(t, 4*time.Second, c.ElectionTimeout)
	require.Subset(t, credentials, []string{"ELECTOR_SECRET", "ELECTOR_CLIENT_SECRET"})

	// elector warns only once of a secret that all users can read, even if it reads the file repeatedly.
	secret, log := filepath.Join(dir, "secret"), new(strings.Builder)
	require.NoError(t, os.WriteFile(secret, []byte(strings.Repeat("y", 16)), 0o600))
	require.NoError(t, os.Chmod(secret, 0o644))
	s.raftlog.Secret, s.raftlog.SecretFile, s.log = "", secret, slog.New(slog.NewTextHandler(log, nil))
	for range 2 {
		_, err = s.raftlogPeerConfig()
		require.NoError(t, err)
	}
	require.Equal(t, 1, strings.Count(log.String(), "--secret-file: "+secret+" has mode 0644"))
}
