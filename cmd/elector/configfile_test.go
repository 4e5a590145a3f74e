//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// writeConfigFile writes a configuration file, and returns its path.
func writeConfigFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "elector.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

const example = `
# The order of precedence: command line, environment, this file, defaults.
backend: console
election: /from/file
instance-id: from file
leader-start-command: echo file   # the name of an older elector
leader-end-command: "echo file"
end-tries: 7
error-timeout: 3s
tls: true
command: [echo, "two  words", 3]
`

// TestConfigFile_NamesLineOfError checks that elector rejects an invalid configuration file, with an error that
// contains the line, and the nearest valid key for an unknown key.
func TestConfigFile_NamesLineOfError(t *testing.T) {
	for text, want := range map[string]string{
		"backend: console\n\nzookeper-server: x\nend-tries: x": `elector.yaml:3: unknown key "zookeper-server": the nearest is "zookeeper-servers"` + "\n",
		"leader-begin-command: a\nleader-start-command: b":     `:2: "leader-start-command" is set in line 1 already`,
		"command: report --serve":                              `:1: "command" is not a list`,
	} {
		_, _, err := parse(t, "run", "--config", writeConfigFile(t, text))
		require.ErrorContains(t, err, want, "%q", text)
		require.Equal(t, cmdline.Usage, exitCode(err), "%q", text)
	}
}

// TestConfigFile_RejectsOrWarnsOfUnsafeMode checks that elector rejects a configuration file that other users can
// write, and warns of credentials in a file that all users can read.
func TestConfigFile_RejectsOrWarnsOfUnsafeMode(t *testing.T) {
	for text, warns := range map[string]bool{
		"backend: console":                       false,
		"store: redis://host":                    false,
		"store: redis://:password@host":          true,
		"store: redis://password@host":           true,
		"store: postgres://me@host/db?sslmode=x": false,
		"store: postgres://me:password@host/db":  true,
		"store: postgres://host/db?password=x":   true,
		"store-password: x":                      true,
		"secret: x":                              true,
	} {
		file := writeConfigFile(t, text)
		require.NoError(t, os.Chmod(file, 0o644))
		s, _, err := parse(t, "run", "--config", file)
		require.NoError(t, err, text)
		require.Equal(t, warns, s.configWarning != "", text)
		require.NoError(t, os.Chmod(file, 0o646))
		_, _, err = parse(t, "run", "--config", file)
		require.ErrorContains(t, err, "--config: "+file+" has mode 0646", text)
		require.Equal(t, cmdline.Usage, exitCode(err))
	}
	file := writeConfigFile(t, "backend: console\nstore-password: x\n")
	require.NoError(t, os.Chmod(file, 0o644))
	p := start(t, "status", "--config", file)
	p.requireExit(cmdline.Usage, "--config: "+file+" has mode 0644")
}

// TestConfigFile_AcceptsKeysOfRunInOtherCommands checks that commands other than run accept a configuration file with
// keys that only run uses, but reject invalid values.
func TestConfigFile_AcceptsKeysOfRunInOtherCommands(t *testing.T) {
	file := writeConfigFile(t, example)
	p := start(t, "status", "--config", file)
	p.requireExit(cmdline.Usage, "status: unsupported operation of backend console")
	p = start(t, "status", "--config", writeConfigFile(t, "end-tries: many"))
	p.requireExit(cmdline.Usage, "end-tries")
}

// TestConfigFile_RunsProgramOfFile checks that elector run starts the program that the configuration file names,
// unless the command line names another program after --.
func TestConfigFile_RunsProgramOfFile(t *testing.T) {
	srv := start(t, "dev-server", "--listen", "127.0.0.1:0")
	addr := srv.waitForOutput("listening on ")[len("listening on "):]
	file := writeConfigFile(t, "backend: zookeeper\nzookeeper-servers: "+addr+"\ncommand: [echo, of  the, file]\n")
	p := start(t, "run", "--config", file)
	p.waitForOutput("of  the file")
	require.Equal(t, cmdline.OK, p.exitCode())
	p = start(t, "run", "--config", file, "--", "echo", "of the line")
	p.waitForOutput("of the line")
	require.Equal(t, cmdline.OK, p.exitCode())
}

// TestConfigFile_AcceptsSystemdExample checks that elector run accepts the configuration file of
// examples/elector/systemd.
func TestConfigFile_AcceptsSystemdExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/elector/systemd/report.yaml")
	require.NoError(t, err)
	s, r, err := parse(t, "run", "--config", writeConfigFile(t, string(text)))
	require.NoError(t, err)
	require.Equal(t, []string{"/usr/local/bin/report", "--serve"}, s.fileProgram)
	require.Equal(t, "127.0.0.1:8081", r.listenAddress)
}
