//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestUsage_ErrorsContainExampleOrAdvice checks that each error of usage is a single line with an example or advice
// and without credentials, and that the command config rejects the same settings as run.
func TestUsage_ErrorsContainExampleOrAdvice(t *testing.T) {
	for _, args := range [][]string{
		{"run"},
		{"run", "--leader-begin-command", "x"},
		{"run", "--backend", "none", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", ",", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "localhost:2181/app", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "x", "--zookeeper-auth", "me", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "x", "--session-timeout", "1ms", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "x", "--ca-file", "/none", "--leader-begin-command", "x"},
		{"run", "--backend", "zookeeper", "--zookeeper-servers", "x", "--cert-file", "/none", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--etcd-endpoints", "x:1", "--etcd-user", "me", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--etcd-endpoints", "x:1", "--session-timeout", "900ms", "--leader-begin-command", "x"},
		{"run", "--backend", "etcd", "--etcd-endpoints", "x:1", "--ca-file", "/none", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--election", "jobs/x", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--lost-grace", "334ms", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--listen", "8080", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--etcd-endpoints", "x:1", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x:1", "--election", "x/", "--leader-begin-command", "x"},
		{"run", "--backend", "changefeed", "--leader-begin-command", "x"},
		{"run", "--store", "memory:", "--leader-begin-command", "x"},
		{"run", "--store", "mysql://x", "--leader-begin-command", "x"},
		{"run", "--store", "redis://x", "--election", "/", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "a", "--dir", "d", "--insecure", "--election", strings.Repeat("x", 2000), "--leader-begin-command", "x"},
		{"run", "--grace", "0s", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--stdin", "--leader-begin-command", "x"},
		{"run", "--backend", "console", "--stdin", "--", "ls"},
		{"run", "--store", "redis://x", "--value", "v", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--value", "a\nb", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--value", strings.Repeat("v", maxValue+1), "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "http://x", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x:99999", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--session-timeout", "2h", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--session-timeout", "5", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--instance-id", "a\nb", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--instance-id", strings.Repeat("x", maxInstanceID+1), "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--listen", ":99999", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--listen", ":nosuch", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--tls=maybe", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--end-tries", "many", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x y:1", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x:99999", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "ftp://x:1", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "http://", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", `x"y`, "--leader-begin-command", "x"},
		{"run", "--store", "redis://x:99999", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "http://x:1,https://y:1", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x:1,https://y:1", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "http://127.0.0.1:1", "--tls", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "unix:///run/etcd", "--tls", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "x:1", "--etcd-user", "me", "--etcd-password", "hunter2", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "127.0.0.1:1,x:1", "--etcd-user", "me", "--etcd-password", "hunter2", "--leader-begin-command", "x"},
		{"run", "--etcd-endpoints", "me:hunter2@x:1", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "me:hunter2@x", "--leader-begin-command", "x"},
		{"run", "--zookeeper-servers", "x", "--zookeeper-auth", "me:hunter2", "--leader-begin-command", "x"},
		{"run", "--store", "redis://:hunter2@x", "--leader-begin-command", "x"},
		{"run", "--store", "redis://x", "--store-password", "hunter2", "--leader-begin-command", "x"},
		{"run", "--store", "nats://hunter2@x", "--leader-begin-command", "x"},
		{"run", "--store", "mongodb://me:hunter2@x/db", "--leader-begin-command", "x"},
		{"run", "--store", "postgres://me@x/db?sslmode=prefer", "--tls", "--leader-begin-command", "x"},
		{"run", "--store", "mongodb://x/db?tls=false", "--tls", "--leader-begin-command", "x"},
		{"run", "--store", "rethinkdb://x", "--leader-begin-command", "x"},
		{"run", "--store", "redis://x", "--store-unsafe", "fire", "--leader-begin-command", "x"},
		{"run", "--store", "redis://x", "--session-timeout", "1ms", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:99999", "--peer-id", "a", "--dir", "d", "--insecure", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "a", "--dir", "d", "--insecure", "--peer-listen", "1", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "a", "--dir", "d", "--insecure", "--session-timeout", "2h", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "a", "--dir", "d", "--leader-begin-command", "x"},
		{"run", "--peers", "a=b:1", "--peer-id", "b", "--leader-begin-command", "x"},
		{"run", "--config", "/none"},
		{"run", "--zookeper-servers", "x"},
		{"status", "--zookeeper-servers", "x", "--timeout", "-1s"},
		{"resign", "--zookeeper-servers", "x", "--timeout", "0s"},
		{"top", "--zookeeper-servers", "x", "--interval", "99ms"},
		{"top", "--zookeeper-servers", "x", "--interval", "1h1ns"},
		{"run", "--timeout", "-1s", "--leader-begin-command", "x"},
		{"run", "--end-tries", "0", "--leader-begin-command", "x"},
		{"run", "--log-format", "xml"},
		{"run", "--log-level", "loud"},
		{"run", "--nonsense"},
		{"run", "program"},
		{"run", "--zookeeper-servers", "x", "program", "--daily"},
		{"run", "--zookeeper-servers", "x", "program", "-d"},
		{"nonsense"},
		{"status", "nonsense"},
	} {
		var configErr error
		if args[0] == "run" {
			// Check the settings with the command config instead of run, which would not return if it accepted the
			// settings.
			_, configErr = executeLine(append([]string{"config"}, args[1:]...)...)
			require.Error(t, configErr, "%v", args)
		}
		_, err := executeLine(args...)
		require.Error(t, err, "%v", args)
		require.Equal(t, cmdline.Usage, exitCode(err), "%v: %v", args, err)
		require.NotContains(t, err.Error(), "\n", "%v", args)
		require.NotContains(t, err.Error(), "hunter2", "%v", args)
		if slices.Contains(args, "program") {
			require.ErrorContains(t, err, "after --, for example elector run ... -- program")
		}
		require.Regexp(t, `for example|such as|did you mean|true nor false|--help\)`, err.Error(), "%v: the error contains neither an example nor advice", args)
		if args[0] == "run" {
			require.EqualError(t, configErr, strings.ReplaceAll(err.Error(), "elector run --help", "elector config --help"))
			require.Equal(t, cmdline.Usage, exitCode(configErr))
		}
	}
	start(t, "nonsense", "--help").requireExit(cmdline.Usage, `unknown command "nonsense"`)
	for program, code := range map[string]int{"no-such-program": cmdline.NotFound, t.TempDir() + "/": cmdline.NotExecutable} {
		_, err := executeLine("run", "--", program)
		require.Equal(t, code, exitCode(err))
	}
}
