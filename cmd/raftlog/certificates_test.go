//go:build unix

package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/testenv/certtest"
)

// withFiles are flags for a certificate of the authority.
func withFiles(a *certtest.Authority) []string {
	ca, cert, key := a.Files("127.0.0.1")
	return []string{"--ca-file", ca, "--cert-file", cert, "--key-file", key}
}

func TestCertificates(t *testing.T) {
	c := newCluster(t, "a", "b")
	c.Setenv(secretVariable, "")
	text := fmt.Sprintf("cluster: test\ndir: %s/{id}\nelection-timeout: 1s\npeers: ['%s/a', '%s/b']\n", c.dir, c.addr("a"), c.addr("b"))
	require.NoError(t, os.WriteFile(c.file, []byte(text), 0o600))
	ours, others := certtest.New(t), certtest.New(t)
	c.start("a", withFiles(ours)...)
	c.start("b", withFiles(ours)...)
	mine := withFiles(ours)
	c.ok(append([]string{"propose", "by certificate"}, mine...)...)
	c.status(mine...)
	r := c.run(append([]string{"propose", "no", "-t", "5s"}, withFiles(others)...)...)
	require.Equal(t, exitFailed, r.code, r.log)
	r = c.run("propose", "no", "-k", secret, "-t", "5s")
	require.Equal(t, exitFailed, r.code, r.log)
	r = c.run(append([]string{"propose", "no"}, mine[:4]...)...)
	require.Equal(t, exitUsage, r.code, r.log)
	require.Contains(t, r.log, "belong together")
}

// TestAllowedNames: a certificate of the authority is not sufficient if its name is not allowed.
func TestAllowedNames(t *testing.T) {
	c := newCluster(t, "a")
	c.Setenv(secretVariable, "")
	text := fmt.Sprintf("cluster: test\ndir: %s/{id}\nelection-timeout: 1s\npeers: ['%s/a']\n", c.dir, c.addr("a"))
	require.NoError(t, os.WriteFile(c.file, []byte(text), 0o600))
	authority := certtest.New(t)
	flags := func(name string) []string {
		ca, cert, key := authority.Files(name)
		return []string{"--ca-file", ca, "--cert-file", cert, "--key-file", key}
	}
	c.start("a", append(flags("127.0.0.1"), "--allowed-names", "127.0.0.1,backup.example.org")...)
	c.ok(append([]string{"propose", "yes"}, flags("backup.example.org")...)...)
	r := c.run(append([]string{"propose", "no", "-t", "5s"}, flags("billing.example.org")...)...)
	require.Equal(t, exitFailed, r.code, r.log)
	r = c.run(append([]string{"propose", "no", "-t", "5s", "--allowed-names", "other"}, flags("backup.example.org")...)...)
	require.Equal(t, exitFailed, r.code, r.log)
	require.Contains(t, r.log, "not one of the allowed names other")
	r = c.run("propose", "no", "-k", secret, "--allowed-names", "other")
	require.Equal(t, exitUsage, r.code, r.log)
}
