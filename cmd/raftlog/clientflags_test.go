//go:build unix

package main

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// The environment variables of the secrets, which are used if no flag is set.
const (
	secretVariable       = "RAFTLOG_SECRET"
	clientSecretVariable = "RAFTLOG_CLIENT_SECRET"
)

// TestSecrets_FlagOverridesEnvironmentAndFile checks that the flags override the environment, which overrides
// the configuration file, that clients neither require nor use the secret of peers, and that an error names the
// setting that is missing.
func TestSecrets_FlagOverridesEnvironmentAndFile(t *testing.T) {
	inFile := writeFile(t, "of the secret file\r\n")
	file := "-c " + writeFile(t, "secret: given in the config\n")
	other := "-c " + writeFile(t, "secret-file: "+inFile+"\n")
	clients := writeFile(t, "the secret of clients\n")
	both := "-c " + writeFile(t, "secret-file: /nowhere\nclient-secret-file: "+clients+"\n")
	const env, peer, client = "of the environment", "peer", "client"
	for _, c := range []struct {
		args, peerEnv, clientEnv, role string
		want                           string // the expected secret, or a part of the error
	}{
		{file, "", "", peer, "given in the config"},
		{other, "", "", peer, "of the secret file"},
		{file, env, "", peer, env},
		{other, env, "", peer, env},
		{file + " --secret-file " + inFile, env, "", peer, "of the secret file"},
		{other + " -k given-by-the-flag", env, "", peer, "given-by-the-flag"},
		{"-k x --secret-file /nowhere", env, "", peer, "set only one of them"},
		{"-c " + writeFile(t, "secret: x\nsecret-file: y\n"), "", "", peer, "set only one of them"},
		{"--secret-file " + writeFile(t, "\n"), "", "", peer, "there is no secret"},
		{"", "", "", peer, "authentication required: set --secret-file, RAFTLOG_SECRET"},
		{"", "", "the secret of clients", peer, "none of peers, which need another one: set --secret-file"},
		{both, "", "", client, "the secret of clients"},
		{both, "", env, client, env},
		{"--client-secret-file " + clients, "the secret of peers", env, client, "the secret of clients"},
		{"", "the secret of peers", "", client, "set --client-secret-file"},
		{"-k the-secret-of-peers", "", "", client, "set --client-secret-file"},
		{"", "", "", client, "authentication required: set --client-secret-file, RAFTLOG_CLIENT_SECRET"},
		{"-c " + writeFile(t, "client-secret: x\nclient-secret-file: y\n"), "", "", client, "set only one of them"},
		{"", "", "short", client, "client-secret (RAFTLOG_CLIENT_SECRET): a secret has 5 bytes"},
	} {
		t.Setenv(secretVariable, c.peerEnv)
		t.Setenv(clientSecretVariable, c.clientEnv)
		var got []byte
		s, err := loadSettings(t, strings.Fields(c.args)...)
		switch {
		case err != nil:
		case c.role == client:
			var current func() []byte
			if current, _, err = s.Client(s.certificates); err == nil {
				got = current()
			}
		default:
			var current func() api.Secrets
			if current, _, err = s.Peer(s.certificates, nil); err == nil {
				got = current().Peers[0]
			}
		}
		if err != nil {
			require.ErrorContains(t, err, c.want, "%+v", c)
			continue
		}
		require.Equal(t, c.want, string(got), "%+v", c)
	}
}

// TestClientFlags_RejectWritableFile checks that a command rejects a file that other users can write, and
// prints a warning if all users can read a secret in a file.
func TestClientFlags_RejectWritableFile(t *testing.T) {
	t.Setenv(secretVariable, "")
	secret := writeFile(t, strings.Repeat("s", 16))
	withSecret := writeFile(t, "cluster: c\npeers: [h:1/a]\nclient-secret: "+strings.Repeat("s", 16)+"\n")
	withFile := writeFile(t, "cluster: c\npeers: [h:1/a]\nclient-secret-file: "+secret+"\n")
	for _, test := range []struct{ file, config, warning, err string }{
		{withSecret, withSecret, "raftlog: warning: --config: " + withSecret + " has mode 0644", "--config: " + withSecret + " has mode 0666"},
		{withFile, withFile, "", "--config: " + withFile + " has mode 0666"},
		{secret, withFile, "raftlog: warning: --client-secret-file: " + secret + " has mode 0644", "--client-secret-file: " + secret + " has mode 0666"},
	} {
		connect := func(mode fs.FileMode) (log string, err error) {
			require.NoError(t, os.Chmod(test.file, mode))
			defer func() { require.NoError(t, os.Chmod(test.file, 0o600)) }()
			var output strings.Builder
			var c clientFlags
			cmd := &cobra.Command{}
			cmd.SetErr(&output)
			c.register(cmd, time.Second, "")
			require.NoError(t, cmd.ParseFlags([]string{"-c", test.config}))
			cl, err := c.newClient(nil)
			if err == nil {
				cl.Close()
			}
			return output.String(), err
		}
		log, err := connect(0o644)
		require.NoError(t, err)
		if test.warning == "" {
			require.Empty(t, log)
		} else {
			require.Contains(t, log, test.warning)
			require.Equal(t, 1, strings.Count(log, "\n"), log)
		}
		_, err = connect(0o666)
		require.ErrorContains(t, err, test.err)
		require.Equal(t, cmdline.Usage, exitCode(err))
	}
}
