//go:build unix

package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClusterFlags_Secret fails if the flags, the environment and the configuration file do not
// override each other in this order.
func TestClusterFlags_Secret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	inFile := write("in-file", "of the secret file\r\n")
	file := write("config", "secret: given in the config\n")
	other := write("other", "secret-file: "+inFile+"\n")
	both := write("both", "secret: x\nsecret-file: "+inFile+"\n")
	for _, c := range []struct {
		a         clusterFlags
		env, want string
	}{
		{clusterFlags{file: file}, "", "given in the config"},
		{clusterFlags{file: other}, "", "of the secret file"},
		{clusterFlags{file: file}, "of the environment", "of the environment"},
		{clusterFlags{file: other}, "of the environment", "of the environment"},
		{clusterFlags{file: file, overrides: settings{SecretFile: inFile}}, "of the environment", "of the secret file"},
		{clusterFlags{file: other, secret: "given by the flag", overrides: settings{SecretFile: "/nowhere"}}, "of the environment", "given by the flag"},
		{clusterFlags{file: both}, "", ""},
		{clusterFlags{overrides: settings{SecretFile: write("empty", "\n")}}, "", ""},
		{clusterFlags{}, "", ""},
	} {
		t.Setenv(secretVariable, c.env)
		s, err := c.a.loadSettings()
		var own credentials
		if err == nil {
			own, err = s.peerCredentials(nil)
		}
		if c.want == "" {
			require.Equal(t, exitUsage, exitCode(err), "%+v", c)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, string(own.peers.First()))
	}
}

// TestClusterFlags_ClientSecret fails if a client needs, or uses, the secret of peers, or an error does not
// name the setting that is missing.
func TestClusterFlags_ClientSecret(t *testing.T) {
	write := func(name, text string) string {
		name = filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	clients := write("clients", "the secret of clients\n")
	both := write("config", "secret-file: /nowhere\nclient-secret-file: "+clients+"\n")
	for _, c := range []struct {
		a               clusterFlags
		peer, env, want string // want is the secret, or a part of the error
	}{
		{clusterFlags{file: both}, "", "", "the secret of clients"},
		{clusterFlags{file: both}, "", "of the environment", "of the environment"},
		{clusterFlags{overrides: settings{ClientSecretFile: clients}}, "the secret of peers", "of the environment", "the secret of clients"},
		{clusterFlags{}, "the secret of peers", "", "set client-secret-file"},
		{clusterFlags{secret: "the secret of peers"}, "", "", "set client-secret-file"},
		{clusterFlags{}, "", "", "authentication required: set --client-secret-file FILE, RAFTLOG_CLIENT_SECRET"},
		{clusterFlags{file: write("twice", "client-secret: x\nclient-secret-file: y\n")}, "", "", "both client-secret and client-secret-file"},
		{clusterFlags{}, "", "short", "--client-secret-file: a secret has 5 bytes"},
	} {
		t.Setenv(secretVariable, c.peer)
		t.Setenv(clientSecretVariable, c.env)
		s, err := c.a.loadSettings()
		var own credentials
		if err == nil {
			own, err = s.clientCredentials()
		}
		if err != nil {
			require.ErrorContains(t, err, c.want)
			require.Equal(t, exitUsage, exitCode(err))
			continue
		}
		require.Equal(t, c.want, string(own.clients.First()))
		require.Nil(t, own.peers)
	}
	t.Setenv(secretVariable, "")
	t.Setenv(clientSecretVariable, "the secret of clients")
	s, err := (&clusterFlags{}).loadSettings()
	require.NoError(t, err)
	_, err = s.peerCredentials(nil)
	require.ErrorContains(t, err, "none of peers: set --secret-file")
}

// TestClusterFlags_Mode fails if a file that others can write is accepted, or nothing warns about a secret
// in a file that all users can read.
func TestClusterFlags_Mode(t *testing.T) {
	t.Setenv(secretVariable, "")
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	secret := write("secret", strings.Repeat("s", 16))
	withSecret := write("with-secret", "cluster: c\npeers: [h:1/a]\nclient-secret: "+strings.Repeat("s", 16)+"\n")
	withFile := write("with-file", "cluster: c\npeers: [h:1/a]\nclient-secret-file: "+secret+"\n")
	for _, test := range []struct{ file, config, warning, err string }{
		{withSecret, withSecret, "raftlog: warning: -c: " + withSecret + " has mode 0644", "-c: " + withSecret + " has mode 0666"},
		{withFile, withFile, "", "-c: " + withFile + " has mode 0666"},
		{secret, withFile, "raftlog: warning: --client-secret-file: " + secret + " has mode 0644", "--client-secret-file: " + secret + " has mode 0666"},
	} {
		connect := func(mode fs.FileMode) (log string, err error) {
			require.NoError(t, os.Chmod(test.file, mode))
			defer func() { require.NoError(t, os.Chmod(test.file, 0o600)) }()
			var output strings.Builder
			c := clientFlags{timeout: durationFlag(time.Second)}
			c.file, c.stderr = test.config, func() io.Writer { return &output }
			cl, _, err := c.newClient(nil)
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
		require.Equal(t, exitUsage, exitCode(err))
	}
}
