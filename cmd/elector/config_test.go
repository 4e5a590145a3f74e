//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestConfig_PrintsFileWithSameSettings checks that the command config prints a configuration file with the settings
// of its command line, without credentials.
func TestConfig_PrintsFileWithSameSettings(t *testing.T) {
	t.Setenv("ELECTOR_INSTANCE_ID", "me: or not")
	t.Setenv("ELECTOR_ZOOKEEPER_AUTH", "me:secret")
	file := writeConfigFile(t, example)
	runConfig := func(args ...string) (string, error) { return executeLine(append([]string{"config"}, args...)...) }
	text, err := runConfig("--config", file, "--grace", "3s")
	require.NoError(t, err)
	require.Contains(t, text, "election: /from/file # "+file+":4\n")
	require.Contains(t, text, "grace: 3s # command line\n")
	require.Contains(t, text, "begin-timeout: 1m0s # default\n")
	require.Contains(t, text, "lost-grace: 250ms # default: a sixteenth of the session timeout\n")
	require.Contains(t, text, "zookeeper-auth: (hidden) # ELECTOR_ZOOKEEPER_AUTH\n")
	require.Contains(t, text, `command: [echo, two  words, "3"]`)

	// The printed file contains the same settings.
	t.Setenv("ELECTOR_INSTANCE_ID", "")
	s, r, err := parse(t, "run", "--config", writeConfigFile(t, text))
	require.NoError(t, err)
	require.Equal(t, "me: or not", s.instanceID)
	require.Equal(t, "echo file", r.beginCommand)
	require.Equal(t, 3*time.Second, r.grace)
	require.Equal(t, []string{"echo", "two  words", "3"}, s.fileProgram)

	text, err = runConfig("--etcd-endpoints", "http://u:pass1234@h:2379", "--", "ls")
	require.Error(t, err)
	require.NotContains(t, text+err.Error(), "pass1234")

	// The printed file contains lists, but not the generated name of the instance.
	text, err = runConfig("--etcd-endpoints", "a:1,b:2", "--session-timeout", "3.5s", "--", "ls")
	require.NoError(t, err)
	require.Contains(t, text, "lost-grace: 250ms # default", "a TTL of etcd has whole seconds")
	require.Contains(t, text, "backend: etcd # default\n", "the settings contain the servers of etcd only")
	require.Contains(t, text, "instance-id: \"\" # default\n")
	s, _, err = parse(t, "run", "--config", writeConfigFile(t, text))
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, s.etcd.endpoints)
	text, err = runConfig("--backend", "console", "--", "ls")
	require.NoError(t, err)
	s, _, err = parse(t, "run", "--config", writeConfigFile(t, text))
	require.NoError(t, err)
	require.Empty(t, s.etcd.endpoints)

	text, err = runConfig("--end-tries", "0", "--", "ls")
	require.Contains(t, text, "command: [ls] # command line\n")
	require.Equal(t, cmdline.Usage, exitCode(err))
}
