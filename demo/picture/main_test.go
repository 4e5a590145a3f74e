package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const output = "\x1b[1mLeader election\x1b[0m\n\n" +
	"\x1b[1m1  Three candidates join\x1b[0m\n\x1b[32m   +1.0 ms  ada  leads\x1b[0m\n\n   ada  leads\n\n" +
	"2  The leader crashes\n   => a & b\n\n3  A candidate joins again\n\n" +
	"4  The leader resigns\n\n5  The leader is cut off\n"

// TestRun fails if a picture does not contain the lines of the selected steps.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo")
	require.NoError(t, run(strings.NewReader(output), []string{path}))
	for _, theme := range themes {
		drawn, err := os.ReadFile(path + "-" + theme.name + ".svg")
		require.NoError(t, err)
		var svg struct {
			Lines []struct {
				Text   string `xml:",chardata"`
				Colour string `xml:"fill,attr"`
			} `xml:"g>text"`
		}
		require.NoError(t, xml.Unmarshal(drawn, &svg))
		var texts []string
		for _, line := range svg.Lines {
			texts = append(texts, line.Text)
			assert.NotEmpty(t, line.Colour, line.Text)
		}
		assert.Equal(t, []string{
			"$ make demo", "Leader election", "1  Three candidates join", "   +1.0 ms  ada  leads",
			"2  The leader crashes", "   => a & b", "4  The leader resigns", "5  The leader is cut off",
		}, texts)
	}
}

// TestRun_IncompleteOutput fails if a picture without all steps is written.
func TestRun_IncompleteOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "demo")
	short := strings.Split(output, "5  ")[0]
	require.ErrorContains(t, run(strings.NewReader(short), []string{path}), "The leader is cut off")
	assert.NoFileExists(t, path+"-light.svg")
}
