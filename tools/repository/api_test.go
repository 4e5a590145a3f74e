package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/api.txt")

// apiFile is the file with the exported API of all packages that users import. Because of this file, a review shows
// each change of the API.
const apiFile = "docs/api.txt"

// TestAPI_DocumentIsUpToDate checks that docs/api.txt lists the exported API. "make api" writes the file.
func TestAPI_DocumentIsUpToDate(t *testing.T) {
	var text strings.Builder
	for _, dir := range publicPackages(t) {
		fmt.Fprintf(&text, "# %s\n\n%s\n\n", dir, strings.Join(exportedDeclarations(t, dir), "\n"))
	}
	if *update {
		require.NoError(t, os.WriteFile(apiFile, []byte(text.String()), 0o644))
	}
	written, err := os.ReadFile(apiFile)
	require.NoError(t, err)
	require.True(t, text.String() == string(written), "%s is not the exported API: run make api, and review the difference", apiFile)
}

// TestAPI_RootPackageExportsAtMost60Names checks that the root package exports at most 60 constants, errors,
// functions, types and methods. Parts that few users need belong in other packages.
func TestAPI_RootPackageExportsAtMost60Names(t *testing.T) {
	names := exportedDeclarations(t, ".")
	require.LessOrEqual(t, len(names), 60, "%q", names)
	require.Greater(t, len(names), 40, "identifiers are not counted: %q", names)
}

// publicPackages returns the directories of the packages that users import, relative to the root.
func publicPackages(t *testing.T) (dirs []string) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{if ne .Name \"main\"}}{{.Dir}}{{end}}", "work").Output()
	require.NoError(t, err)
	root, err := os.Getwd()
	require.NoError(t, err)
	for _, dir := range strings.Fields(string(out)) {
		dir, err := filepath.Rel(root, dir)
		require.NoError(t, err)
		parts := strings.Split(filepath.ToSlash(dir), "/")
		if !slices.Contains(parts, "internal") && !slices.Contains([]string{"examples", "integrationtest"}, parts[0]) {
			dirs = append(dirs, filepath.ToSlash(dir))
		}
	}
	slices.Sort(dirs)
	return dirs
}

// exportedDeclarations returns the declarations of a package's exported identifiers, without comments.
func exportedDeclarations(t *testing.T, dir string) (decls []string) {
	files := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	var parsed []*ast.File
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			parsed = append(parsed, f)
		}
	}
	p, err := doc.NewFromFiles(files, parsed, core+"/"+dir)
	require.NoError(t, err)
	add := func(node any) {
		var b bytes.Buffer
		require.NoError(t, format.Node(&b, files, node))
		decls = append(decls, strings.ReplaceAll(b.String(), "\n\n", "\n")) // removed comments leave empty lines behind
	}
	addValues := func(values []*doc.Value) {
		for _, v := range values {
			for _, name := range v.Names {
				decls = append(decls, v.Decl.Tok.String()+" "+name)
			}
		}
	}
	addFuncs := func(funcs []*doc.Func) {
		for _, f := range funcs {
			f.Decl.Body = nil
			add(f.Decl)
		}
	}
	addValues(p.Consts)
	addValues(p.Vars)
	addFuncs(p.Funcs)
	for _, x := range p.Types {
		add(x.Decl)
		addValues(x.Consts)
		addValues(x.Vars)
		addFuncs(x.Funcs)
		addFuncs(x.Methods)
	}
	return decls
}
