package repository_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAPI_Size fails if the root package exports more than 60 constants, errors, functions, types and methods.
// Parts that few users need belong in other packages.
func TestAPI_Size(t *testing.T) {
	files := token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var parsed []*ast.File
	for _, path := range paths {
		if !strings.HasSuffix(path, "_test.go") {
			f, err := parser.ParseFile(files, path, nil, 0)
			require.NoError(t, err)
			parsed = append(parsed, f)
		}
	}
	p, err := doc.NewFromFiles(files, parsed, module)
	require.NoError(t, err)
	var names []string
	addValues := func(values []*doc.Value) {
		for _, v := range values {
			names = append(names, v.Names...)
		}
	}
	addFuncs := func(funcs []*doc.Func) {
		for _, f := range funcs {
			names = append(names, f.Name)
		}
	}
	addValues(p.Consts)
	addValues(p.Vars)
	addFuncs(p.Funcs)
	for _, x := range p.Types {
		names = append(names, x.Name)
		addValues(x.Consts)
		addValues(x.Vars)
		addFuncs(x.Funcs)
		addFuncs(x.Methods)
	}
	require.LessOrEqual(t, len(names), 60, "%q", names)
	require.Greater(t, len(names), 40, "identifiers are not counted: %q", names)
}
