package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	gomodule "golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// proxy is a directory that contains the modules of the repository for the go command. Each run of this
// command uses a different version, because the go command caches modules.
type proxy struct {
	repository *repository
	version    string
	dir        string   // a temporary directory
	env        []string // environment of the go command
	cache      string   // the module cache of the go command
}

func newProxy(ctx context.Context, r *repository) (*proxy, error) {
	var unique [6]byte
	if _, err := rand.Read(unique[:]); err != nil {
		return nil, err
	}
	p := &proxy{repository: r}
	p.version = gomodule.PseudoVersion("v0", "", time.Now(), hex.EncodeToString(unique[:]))
	out, err := runCommand(ctx, r.root, nil, "go", "env", "-json", "GOPROXY", "GOMODCACHE", "GOFLAGS")
	if err != nil {
		return nil, err
	}
	var env struct{ GOPROXY, GOMODCACHE, GOFLAGS string }
	if err := json.Unmarshal([]byte(out), &env); err != nil {
		return nil, err
	}
	p.cache = env.GOMODCACHE
	if p.dir, err = os.MkdirTemp("", "modules"); err != nil {
		return nil, err
	}
	ownModules := filepath.Dir(r.corePath()) + "/*"
	p.env = []string{
		"GOWORK=off", "GOPROXY=file://" + filepath.ToSlash(p.dir) + "/proxy," + env.GOPROXY, "GONOSUMDB=" + ownModules,
		"GOFLAGS=" + strings.TrimSpace(env.GOFLAGS+" -mod=mod"), "GOTOOLCHAIN=local",
	}
	for _, m := range r.modules {
		if err := p.addModule(m); err != nil {
			p.close()
			return nil, fmt.Errorf("%s: %w", m.dir, err)
		}
	}
	return p, nil
}

// close removes the directory, and removes the modules from the cache of the go command.
func (p *proxy) close() {
	for _, m := range p.repository.modules {
		dir := filepath.Join(p.cache, m.path+"@"+p.version)
		_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = os.Chmod(name, 0o755) // the cache is read-only
			}
			return nil
		})
		_ = os.RemoveAll(dir)
		files, _ := filepath.Glob(filepath.Join(p.cache, "cache", "download", m.path, "@v", p.version+".*"))
		for _, name := range files {
			_ = os.Remove(name)
		}
	}
	_ = os.RemoveAll(p.dir)
}

// addModule writes the files of a module to the directory.
func (p *proxy) addModule(m *module) error {
	goMod, err := p.repository.goMod(m, p.version)
	if err != nil {
		return err
	}
	source := filepath.Join(p.repository.root, m.dir)
	checked, err := zip.CheckDir(source)
	if err != nil {
		return err
	}
	var files []zip.File
	for _, disk := range checked.Valid {
		name, err := filepath.Rel(source, disk)
		if err != nil {
			return err
		}
		f := sourceFile{name: filepath.ToSlash(name), disk: disk}
		if name == "go.mod" {
			f.content = goMod
		}
		files = append(files, f)
	}
	var packed bytes.Buffer
	if err := zip.Create(&packed, gomodule.Version{Path: m.path, Version: p.version}, files); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": p.version, "Time": time.Now().UTC()})
	if err != nil {
		return err
	}
	dir := filepath.Join(p.dir, "proxy", m.path, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for suffix, content := range map[string][]byte{".info": info, ".mod": goMod, ".zip": packed.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, p.version+suffix), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sourceFile is a file of a module. If content is nil, the content is that of the file disk.
type sourceFile struct {
	name, disk string
	content    []byte
}

func (f sourceFile) Path() string { return f.name }

func (f sourceFile) Lstat() (os.FileInfo, error) {
	info, err := os.Lstat(f.disk)
	if err != nil || f.content == nil {
		return info, err
	}
	return sizedInfo{info, int64(len(f.content))}, nil
}

func (f sourceFile) Open() (io.ReadCloser, error) {
	if f.content != nil {
		return io.NopCloser(bytes.NewReader(f.content)), nil
	}
	return os.Open(f.disk)
}

// sizedInfo is the information about a file with another size.
type sizedInfo struct {
	os.FileInfo
	size int64
}

func (i sizedInfo) Size() int64 { return i.size }
