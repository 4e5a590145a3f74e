//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// configFile is a file of these lines.
func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "elector.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

const example = `
# Who comes first: the command line, the environment, this file, the defaults.
backend: console
election: /from/file
instance-id: from file
leader-start-command: echo file   # the predecessor's name
leader-end-command: "echo file"
end-tries: 7
error-timeout: 3s
tls: true
command: [echo, "two  words", 3]
`

func TestConfigFile(t *testing.T) {
	t.Setenv("ELECTOR_INSTANCE_ID", "from variable")
	t.Setenv("ELECTOR_KEY", "/from/variable")
	file := configFile(t, example)
	s, r, err := parse(t, "run", "--config", file, "--instance-id", "from flag", "--leader-end-command", "echo flag")
	require.NoError(t, err)
	require.Equal(t, "console", s.backend)
	require.Equal(t, "from flag", s.instanceID)
	require.Equal(t, "/from/variable", s.election)
	require.Equal(t, "echo file", r.beginCommand)
	require.Equal(t, "echo flag", r.endCommand)
	require.Equal(t, 7, r.endTries)
	require.Equal(t, 3*time.Second, r.errorTimeout)
	require.Equal(t, 10*time.Second, r.grace, "the default")
	require.True(t, s.zookeeper.tls)
	require.Equal(t, []string{"echo", "two  words", "3"}, s.fileProgram)

	t.Setenv("ELECTOR_CONFIG", file)
	s, r, err = parse(t, "run")
	require.NoError(t, err)
	require.Equal(t, "from variable", s.instanceID)
	require.Equal(t, "echo file", r.endCommand)

	for _, empty := range []string{"", "# nothing\n", "---\n", "{}\n"} {
		_, _, err = parse(t, "run", "--config", configFile(t, empty))
		require.NoError(t, err, "%q", empty)
	}
}

func TestWrongConfigFile(t *testing.T) {
	for text, want := range map[string]string{
		"backend: console\n\nzookeper-server: x": `elector.yaml:3: unknown key "zookeper-server": the nearest is "zookeeper-servers"`,
		"comand: [x]":                            `:1: unknown key "comand": the nearest is "command"`,
		"config: x":                              `:1: unknown key "config"`,
		"help: true":                             `:1: unknown key "help"`,
		"<<: {backend: console}":                 "neither a value nor a list",
		"error-timeout: soon":                    `:1: "error-timeout": "soon" is not a duration such as 10s`,
		"end-tries: 1\nend-tries: 2":             `already`,
		"leader-begin-command: a\nleader-start-command: b": `:2: "leader-start-command" is set in line 1 already`,
		"command: report --daily":                          `:1: "command" is not a list`,
		"command: []":                                      `:1: "command" is not a list`,
		"command: [[x]]":                                   `line 1: "command" is neither`,
		"backend: [console]":                               `:1: "backend" is a list`,
		"backend: {console: 1}":                            `line 1: "backend" is neither`,
		"backend:":                                         `:1: "backend" has no value`,
		"backend: console\n---\nbackend: x":                "expected exactly one YAML document",
		"- backend":                                        "line 1: not of the form key: value",
		"backend: \"console":                               "unexpected end",
	} {
		_, _, err := parse(t, "run", "--config", configFile(t, text))
		require.ErrorContains(t, err, want, "%q", text)
		require.ErrorContains(t, err, "elector.yaml", "%q", text)
		require.Equal(t, exitUsage, exitCode(err), "%q", text)
	}
	_, _, err := parse(t, "run", "--config", "/no/such/file")
	require.ErrorContains(t, err, "--config: open /no/such/file")
	require.Equal(t, exitUsage, exitCode(err))
}

// TestConfigFileOfOthers: the same file does for all commands.
func TestConfigFileOfOthers(t *testing.T) {
	file := configFile(t, example)
	p := start(t, nil, "status", "--config", file)
	require.Equal(t, exitUsage, p.exit())
	p.logs("status: unsupported operation of backend console")
	p = start(t, nil, "status", "--config", configFile(t, "end-tries: many"))
	require.Equal(t, exitUsage, p.exit())
	p.logs("end-tries")
}

// TestProgramOfTheConfigFile: what follows -- counts first.
func TestProgramOfTheConfigFile(t *testing.T) {
	srv := start(t, nil, "dev-server", "--listen", "127.0.0.1:0")
	addr := srv.says("listening on ")[len("listening on "):]
	file := configFile(t, "backend: zookeeper\nzookeeper-servers: "+addr+"\ncommand: [echo, of  the, file]\n")
	p := start(t, nil, "run", "--config", file)
	p.says("of  the file")
	require.Equal(t, exitOK, p.exit())
	p = start(t, nil, "run", "--config", file, "--", "echo", "of the line")
	p.says("of the line")
	require.Equal(t, exitOK, p.exit())
}

// TestConfigFileOfTheExample: the unit's file is understood.
func TestConfigFileOfTheExample(t *testing.T) {
	s, r, err := parse(t, "run", "--config", "../../examples/elector/systemd/report.yaml")
	require.NoError(t, err)
	require.Equal(t, []string{"/usr/local/bin/report", "--daily"}, s.fileProgram)
	require.Equal(t, "127.0.0.1:8081", r.listenOn)
}
