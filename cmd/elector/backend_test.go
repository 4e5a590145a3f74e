//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
	"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline"
)

// TestDocumentation_ListsCommandsOfEachBackend checks that the table in docs/elector.md lists for each command line
// whether each backend supports it. The first column of the table contains command lines, and each further column
// represents a backend.
func TestDocumentation_ListsCommandsOfEachBackend(t *testing.T) {
	text, err := os.ReadFile("../../docs/elector.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "The backends support these commands:\n\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var rows [][]string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	backends := rows[0][1:]
	require.ElementsMatch(t, slices.Collect(maps.Keys(backendKinds)), backends)
	listed := map[string]bool{}
	for _, row := range rows[2:] {
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[0], -1) {
			args := strings.Fields(code[1])
			listed[args[0]] = true
			for i, backend := range backends {
				_, err := executeLine(append(args, "--backend", backend)...) // the arguments contain neither servers nor a program
				require.Error(t, err, "%s on %s", code[1], backend)
				require.Equal(t, cmdline.Usage, exitCode(err), "%s on %s: %v", code[1], backend, err)
				want := map[bool]string{true: "no", false: "yes"}[errors.Is(err, errors.ErrUnsupported)]
				require.Equal(t, want, row[i+1], "%s on %s: %v", code[1], backend, err)
			}
		}
	}
	for _, cmd := range newRoot().Commands() {
		name := cmd.Name()
		if cmd.Annotations[withoutBackend] == "" && name != "help" && name != "completion" {
			require.True(t, listed[name], "the table does not list %s", name)
		}
	}
}

// TestCommands_StopAtTimeoutAndNameServers checks that commands fail at their timeout if no server answers, with an
// error that names the servers.
func TestCommands_StopAtTimeoutAndNameServers(t *testing.T) {
	h := newZooKeeperHarness(t)
	h.srv.Stop()
	for _, command := range []string{"status", "status --wait", "end", "delete"} {
		args := append(strings.Fields(command), "--timeout", "50ms")
		p := h.command(args[0], args[1:]...)
		require.Equal(t, cmdline.Failed, p.exitCode(), command)
		line := p.waitForLog("no answer from zookeeper at " + h.addr + " within 50ms")
		require.NotContains(t, line, leaderelection.ErrUnreachable.Error())
	}
	watch := h.command("watch")
	watch.waitForLog("no ZooKeeper server has granted a session")
	watch.terminate()
}

// TestDescribeTimeout_NamesTheCauseOnce checks that the error of a command that has timed out states only once that
// the backend does not answer, and contains and wraps the cause.
func TestDescribeTimeout_NamesTheCauseOnce(t *testing.T) {
	s := &settings{backend: "zookeeper", zookeeper: zooKeeperSettings{servers: "a:1"}}
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	refused := errors.New("a:1: connection refused")
	unreachable := fmt.Errorf("%w: %w", leaderelection.ErrUnreachable, context.DeadlineExceeded)
	for _, c := range []struct {
		err    error
		reason string
	}{
		{fmt.Errorf("%w: %w", unreachable, refused), ": a:1: connection refused"},
		{unreachable, ""},
		{context.DeadlineExceeded, ""},
		{fmt.Errorf("list: %w", context.DeadlineExceeded), ": list: context deadline exceeded"},
	} {
		err := s.describeTimeout(ctx, time.Second, c.err)
		require.EqualError(t, err, "no answer from zookeeper at a:1 within 1s"+c.reason)
		require.ErrorIs(t, err, c.err)
	}
}

// TestCommands_RejectUnsupportedBackend checks that a command that the backend does not support fails with an error
// that lists the backends that support the command.
func TestCommands_RejectUnsupportedBackend(t *testing.T) {
	for command, backends := range map[string]string{
		"status": "changefeed, etcd, raftlog, zookeeper", "watch": "changefeed, etcd, raftlog, zookeeper",
		"end": "changefeed, etcd, zookeeper", "delete": "changefeed, etcd, zookeeper", "resign": "etcd, raftlog, zookeeper",
	} {
		p := start(t, command, "--backend", "console")
		p.requireExit(cmdline.Usage, command+": unsupported operation of backend console, only of "+backends)
	}
}

// TestCommands_NameCredentialsIfPermissionIsDenied checks that the error of a command without permission names the
// variable and the flag for the credentials.
func TestCommands_NameCredentialsIfPermissionIsDenied(t *testing.T) {
	h := newZooKeeperHarness(t)
	t.Setenv("ELECTOR_ZOOKEEPER_AUTH", "me:secret")
	h.lead("a", graceful)
	t.Setenv("ELECTOR_ZOOKEEPER_AUTH", "")
	h.command("end").requireExit(cmdline.Permanent, "set ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)")
	t.Setenv("ELECTOR_ZOOKEEPER_AUTH", "me:wrong")
	h.command("end").requireExit(cmdline.Permanent, "check the credentials in ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)")
}

// TestAdvise_NamesVariablesOfCredentials checks that advise adds the variables and flags for credentials to an error
// of authentication, does not print the credentials, and returns other errors unchanged.
func TestAdvise_NamesVariablesOfCredentials(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	for _, c := range []struct{ args, cause, want string }{
		{"--zookeeper-servers x", "", "there are no credentials: set ELECTOR_ZOOKEEPER_AUTH (--zookeeper-auth)"},
		{"--zookeeper-servers x --zookeeper-auth me:secret", "", "check the credentials in ELECTOR_ZOOKEEPER_AUTH"},
		{"--etcd-endpoints x:1", "", "there are no credentials: set ELECTOR_ETCD_USER and ELECTOR_ETCD_PASSWORD"},
		{"--etcd-endpoints x:1 --etcd-user me --etcd-password secret", "", "check the credentials in ELECTOR_ETCD_USER"},
		{"--store redis://x", "NOAUTH Authentication required.", "there are no credentials: set ELECTOR_STORE (--store"},
		{"--store redis://x --store-password secret", "WRONGPASS invalid username-password pair", "check the credentials in ELECTOR_STORE"},
		{"--store postgres://me@x/db", `FATAL: password authentication failed for user "me" (SQLSTATE 28P01)`, "ELECTOR_STORE_PASSWORD (--store-password)"},
		{"--store postgres://me@x/db --store-password secret", "tls error: server refused TLS connection", "--store implies sslmode=verify-full"},
		{"--store postgres://me@x/db?sslmode= --store-password secret", "tls: failed to verify certificate: x509: certificate signed by unknown authority", "or set sslmode in --store"},
		{"--store mysql://me@x/db", "Error 1045 (28000): Access denied for user 'me'@'y'", "ELECTOR_STORE_PASSWORD"},
		{"--store nats://me@x", "nats: Authorization Violation", "ELECTOR_STORE_PASSWORD"},
		{"--store nats://me@x", "", "ELECTOR_STORE_PASSWORD"},
	} {
		s, _, err := parse(t, append([]string{"run"}, strings.Fields(c.args)...)...)
		require.NoError(t, err)
		cause := leaderelection.ErrPermission // for example SESSIONCLOSEDREQUIRESASLAUTH, for which the client library has no error
		if c.cause != "" {
			cause = errors.New(c.cause)
		}
		err = s.advise(cause)
		require.ErrorIs(t, err, cause)
		require.ErrorContains(t, err, c.want, c.args)
		require.NotContains(t, err.Error(), "secret", c.args)
		require.Equal(t, io.ErrUnexpectedEOF, s.advise(io.ErrUnexpectedEOF))
	}
	s, _, err := parse(t, "run", "--zookeeper-servers", "x")
	require.NoError(t, err)
	require.ErrorContains(t, s.advise(fmt.Errorf("%w: %w", leaderelection.ErrPermission, zk.ErrNoAuth)), "there are no credentials")
	quota := fmt.Errorf("%w: QUOTAEXCEEDED", leaderelection.ErrPermission)
	require.Equal(t, quota, s.advise(quota))
}

// TestAdvise_KeepsTLSErrorIfSSLModeWasNotImplied checks that advise adds nothing to the error of a server without TLS
// if elector has not chosen sslmode itself.
func TestAdvise_KeepsTLSErrorIfSSLModeWasNotImplied(t *testing.T) {
	refused := errors.New("tls error: server refused TLS connection")
	for _, args := range []string{"--store postgres://me@x/db?sslmode=require", "--store postgres://me@x/db --tls", "--store redis://x"} {
		s, _, err := parse(t, append([]string{"run"}, strings.Fields(args)...)...)
		require.NoError(t, err)
		require.Equal(t, refused, s.advise(refused), args)
	}
}
