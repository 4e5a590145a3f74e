package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// TestLinkRepository_ReplacesOutsideLinks checks that linkRepository replaces each link to a file outside of docs by
// the address of the file in the repository, and leaves other links unchanged.
func TestLinkRepository_ReplacesOutsideLinks(t *testing.T) {
	text := "[a](lock.md#b) [b](../design.md) [c](../../zktest/doc.go) [d](https://example.com/../x) [e](#f) [g](../../README.md#h)"
	require.Equal(t, "[a](lock.md#b) [b](../design.md) [c]("+browse+"zktest/doc.go) [d](https://example.com/../x) [e](#f) [g]("+browse+"README.md#h)",
		linkRepository("docs/tasks/job.md", text))
}

// TestNavigation_ContainsAllPages checks that the navigation of the documentation site contains each page of docs.
func TestNavigation_ContainsAllPages(t *testing.T) {
	config, err := os.ReadFile("tools/repository/mkdocs.yml")
	require.NoError(t, err)
	docs := os.DirFS("docs")
	require.NoError(t, fs.WalkDir(docs, ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			require.Regexp(t, "(?m)^ +- (.*: )?"+regexp.QuoteMeta(name)+"$", string(config))
		}
		return err
	}))
}

// TestCheckLinks_RejectsBrokenLinks checks that checkLinks reports broken links and files that a page loads from
// other sites, and accepts valid links.
func TestCheckLinks_RejectsBrokenLinks(t *testing.T) {
	page := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	others, problems, err := checkLinks(fstest.MapFS{
		"index.html":   page(`<h1 id="top">x</h1><a class="a" href="a/b.html#--listen">x</a> <a href="#top">x</a> <a href=".">x</a> <img alt="" src="x.svg">`),
		"a/b.html":     page(`<h2 id="--listen">x</h2><a href="../index.html#none">x</a> <a href="c.html">x</a> <a href="https://example.com/">x</a>`),
		"x.svg":        page(""),
		"404.html":     page(`<a href="/x">x</a>`),
		"a/loads.html": page(`<script src="https://cdn.example.com/x.js"></script><link rel="stylesheet" href="//fonts.example.com">`),
	})
	require.NoError(t, err)
	require.Equal(t, []string{"https://example.com/"}, others)
	require.Equal(t, []string{
		"a/b.html links ../index.html#none, which has no such anchor",
		"a/b.html links c.html, which does not exist",
		"a/loads.html loads https://cdn.example.com/x.js",
		"a/loads.html loads //fonts.example.com",
	}, problems)
}
