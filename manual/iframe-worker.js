// A page that lies in a folder may start no worker, and the search of the site is one. Here it runs
// in a hidden frame instead, which takes and gives the same messages. Served pages keep theirs.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => tell(this, data);
      const script = this.inside.document.createElement("script");
      script.src = new URL(url, document.baseURI);
      this.loaded = new Promise((done, failed) => {
        script.onload = done;
        script.onerror = failed;
      });
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => tell(this.inside, data));
    }
  };
  window.Worker = window.IFrameWorker;
}

function tell(target, data) {
  target.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
}
