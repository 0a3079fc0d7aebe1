package render

import (
	"errors"
	"fmt"
	"path"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// build builds a kustomization from the gathered files in memory. It returns a panic of kustomize as an error.
func build(files map[string][]byte, dir string) (data []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("kustomize failed: %v", r)
		}
	}()
	memory := filesys.MakeFsInMemory()
	for _, name := range strict.Keys(files) {
		if err := memory.WriteFile("/"+name, files[name]); err != nil {
			return nil, err
		}
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(memory, path.Join("/", dir))
	if err != nil {
		return nil, errors.New(strict.OneLine(err.Error()))
	}
	return objects.AsYaml()
}
