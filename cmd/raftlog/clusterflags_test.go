//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

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
		var got []byte
		if err == nil {
			got, _, err = s.credentials()
		}
		if c.want == "" {
			require.Equal(t, exitUsage, exitCode(err), "%+v", c)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, string(got))
	}
}
