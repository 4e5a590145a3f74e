package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/ast/astutil"
)

// core is the path of the core module of this repository.
const core = "github.com/go-leaderelection/leaderelection"

//go:embed adopters/*/*.txt
var adapters embed.FS

// adopter is a project of another author whose tests run on this library.
type adopter struct {
	name     string            // the name of the project, and of the directory with its adapter and its tests
	dir      string            // the directory of the tested package in the checkout
	replaced []string          // the declarations that the adapter replaces: functions, methods (T.M), and types with all methods
	imports  map[string]string // the replacements of import paths, in the package and in the added tests
}

var adopters = []adopter{
	{"kvtools", ".", []string{"zookeeperLock", "Store.NewLock"}, nil},
	{"prometheus", "discovery/zookeeper", []string{"Discovery", "NewDiscovery"}, nil},
	{"vitess", "go/vt/topo/zk2topo", []string{
		"zkLeaderParticipation", "Server.NewLeaderParticipation",
		"zkLockDescriptor", "Server.Lock", "Server.LockWithTTL", "Server.LockName", "Server.TryLock", "Server.lock",
		"dialZk",
		"TestZkConnClosedOnDisconnect", // this test uses a method that the imported client library does not have
	}, map[string]string{"github.com/z-division/go-zookeeper/zk": "github.com/go-zookeeper/zk"}},
}

// runAdopters runs tests of other projects on this library. It copies a checkout of the project, removes the
// declarations that an adapter replaces, adds the adapter and its tests, replaces imports of another client library,
// and runs the tests of the package. The adapters are in the directory adopters; the repository contains no code of
// the projects. With -original, runAdopters keeps the declarations and the imports, and only adds the tests.
func runAdopters(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("adopters", flag.ExitOnError)
	original := flags.Bool("original", false, "run the tests on what the projects use today")
	if err := flags.Parse(args); err != nil {
		return err
	}
	library, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	if flags.NArg() == 0 {
		return errUsage
	}
	for _, arg := range flags.Args() {
		name, checkout, _ := strings.Cut(arg, "=")
		i := slices.IndexFunc(adopters, func(a adopter) bool { return a.name == name })
		if i < 0 || checkout == "" {
			return fmt.Errorf("%q is not NAME=CHECKOUT with the name of a directory of tools/repository/adopters", arg)
		}
		if failed := adopters[i].test(ctx, checkout, library, *original); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, failed))
		}
	}
	return err
}

// test runs the tests of the project in a copy of a checkout.
func (a adopter) test(ctx context.Context, checkout, library string, original bool) (err error) {
	dir, err := os.MkdirTemp("", "adopter")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := copyCheckout(dir, checkout); err != nil {
		return err
	}
	pkg := filepath.Join(dir, filepath.FromSlash(a.dir))
	if !original {
		if err := a.removeReplaced(pkg); err != nil {
			return err
		}
	}
	if err := a.addFiles(pkg, original); err != nil {
		return err
	}
	if !original {
		if err := a.replaceImports(pkg); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"mod", "edit", "-require=" + core + "@v0.0.0", "-replace=" + core + "=" + library},
		{"test", "-mod=mod", "-count=1", "-timeout=3m", "-v", "./" + a.dir},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stdout, os.Stderr
		// CI is empty, because Vitess skips tests if CI is true.
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CI=")
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}

// copyCheckout copies the files of a checkout, without the directory .git. The checkout may be read-only.
func copyCheckout(dir, checkout string) error {
	return filepath.WalkDir(checkout, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(checkout, name)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, relative)
		switch {
		case d.Name() == ".git":
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
}

// addFiles writes the tests to the package, and also the adapter unless original is true.
func (a adopter) addFiles(pkg string, original bool) error {
	files, err := fs.Glob(adapters, "adopters/"+a.name+"/*.txt")
	if err != nil {
		return err
	}
	for _, name := range files {
		target := "leaderelection_" + strings.TrimSuffix(filepath.Base(name), ".txt")
		if original && !strings.HasSuffix(target, "_test.go") {
			continue
		}
		content, err := adapters.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(pkg, target), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeReplaced removes the declarations that the adapter replaces from the files of the package. It returns an
// error if one of them does not exist: then the project has changed since the adapter was written.
func (a adopter) removeReplaced(pkg string) error {
	files, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return err
	}
	missing := slices.Clone(a.replaced)
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		changed, removed, err := removeDeclarations(source, a.replaced)
		if err != nil {
			return err
		}
		if len(removed) == 0 {
			continue
		}
		missing = slices.DeleteFunc(missing, func(x string) bool { return slices.Contains(removed, x) })
		if err := os.WriteFile(name, changed, 0o644); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s does not declare %s", a.dir, strings.Join(missing, " or "))
	}
	return nil
}

// replaceImports replaces import paths in the files of the package. It returns an error if no file contains one of
// the imports.
func (a adopter) replaceImports(pkg string) error {
	names, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return err
	}
	for old, path := range a.imports {
		found := false
		for _, name := range names {
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, name, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			if !astutil.RewriteImport(files, file, old, path) {
				continue
			}
			found = true
			var b bytes.Buffer
			if err := format.Node(&b, files, file); err != nil {
				return err
			}
			if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
				return err
			}
		}
		if !found {
			return fmt.Errorf("%s does not import %s", a.dir, old)
		}
	}
	return nil
}

// removeDeclarations removes the declarations with the given names, and the imports that become unused. It returns
// the names of the declarations that it has removed.
func removeDeclarations(source []byte, names []string) (changed []byte, removed []string, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	for _, decl := range slices.Backward(file.Decls) {
		name := declarationName(decl)
		receiver, _, _ := strings.Cut(name, ".")
		if !slices.Contains(names, name) && !slices.Contains(names, receiver) {
			continue
		}
		removed = append(removed, name)
		begin, end := files.Position(decl.Pos()).Offset, files.Position(decl.End()).Offset
		source = slices.Delete(source, begin, end)
	}
	if len(removed) == 0 {
		return source, nil, nil
	}
	before := file
	if file, err = parser.ParseFile(files, "", source, parser.ParseComments); err != nil {
		return nil, nil, err
	}
	for _, spec := range slices.Clone(file.Imports) {
		// UsesImport cannot find out the package name of a path such as math/rand/v2. Keep such an import.
		if path := strings.Trim(spec.Path.Value, `"`); astutil.UsesImport(before, path) && !astutil.UsesImport(file, path) {
			name := ""
			if spec.Name != nil {
				name = spec.Name.Name
			}
			astutil.DeleteNamedImport(files, file, name, path)
		}
	}
	var b bytes.Buffer
	err = format.Node(&b, files, file)
	return b.Bytes(), removed, err
}

// declarationName returns the name under which the table of adopters lists a declaration: the name of a function, T.M for a
// method M of a type T, or the name of a type that is declared alone.
func declarationName(decl ast.Decl) string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return d.Name.Name
		}
		receiver := d.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		if named, ok := receiver.(*ast.Ident); ok {
			return named.Name + "." + d.Name.Name
		}
	case *ast.GenDecl:
		if d.Tok == token.TYPE && len(d.Specs) == 1 {
			return d.Specs[0].(*ast.TypeSpec).Name.Name
		}
	}
	return ""
}
