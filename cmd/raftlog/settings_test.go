//go:build unix

package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// TestDefaults fails if the file of raftlog defaults lacks a key, its description or its default.
func TestDefaults(t *testing.T) {
	s := defaultSettings()
	require.NoError(t, parseSettings([]byte(defaults), &s))
	want := defaultSettings()
	want.Peers, want.AllowedNames, want.AllowedClientNames = []filePeer{}, []string{}, []string{}
	require.Equal(t, want, s)
	for i := range reflect.TypeFor[settings]().NumField() {
		key := reflect.TypeFor[settings]().Field(i).Tag.Get("yaml")
		if key == "" {
			continue // it is not a setting
		}
		require.Regexp(t, `(?m)^`+key+`: `, defaults, key)
		require.Contains(t, strings.Split(defaults, "\n"+key+": ")[0], "#", key)
	}
}

// TestParseSettings fails if a file is not parsed, an invalid one is accepted, or an error contains
// a value, which may be a secret.
func TestParseSettings(t *testing.T) {
	s := defaultSettings()
	require.NoError(t, parseSettings([]byte("window: 1h30m\npeers: [ 'tcp://h:1/a', {addr: 'g:2', id: b} ]\ndir: /x/{id}\npeer-id: b\ncompact-file: y/{id}/z\n"), &s))
	s.expandPaths()
	require.Equal(t, 90*time.Minute, s.Window)
	require.Equal(t, []api.Peer{{ID: "a", Addr: "h:1"}, {ID: "b", Addr: "g:2"}}, s.peers())
	require.Equal(t, "/x/b", s.Dir)
	require.Equal(t, "y/b/z", s.CompactFile)
	require.NoError(t, parseSettings([]byte("# nothing\n"), &s))
	for text, want := range map[string]string{
		"cluster: a\nwindoww: 1h": "line 2: unknown key \"windoww\"",
		"\nwindow: long":          "line 2: the value is not a duration, such as 1s",
		"window: 5":               "line 1: the value is not a duration, such as 1s",
		"max-data: lots":          "line 1: the value is not a number",
		"peers: a":                "line 1: the value is not a list of peers",
		"peers: [a]":              "line 1: peer \"a\"",
		"peers:\n- {id: a, addr: 'h:1', port: 2}": "line 2: unknown key \"port\"",
		"peers:\n- {id: a}":                       "line 2",
		"peers: [[]]":                             "line 1",
		"cluster: a\ncluster: b":                  "line 2",
		"a: b\n---\nc: d":                         "unknown key",
		"cluster: a\n---\ncluster: d":             "exactly one YAML document",
		"secret: [" + secret + "]":                "line 1",
		"insecure: " + secret:                     "line 1: the value is not true or false",
		"secret: {a: \"" + secret + "\"}":         "line 1: the value is not a string",
		"- a":                                     "line 1: the value is not a mapping of keys",
	} {
		s := defaultSettings()
		err := parseSettings([]byte(text), &s)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), secret)
	}
}
