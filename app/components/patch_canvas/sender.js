// Sends the selection up, at most every 120 ms, and always the last one.

const QUIET_MS = 120;

export function makeSender(setStateValue) {
  let last = -Infinity;
  let timer = null;
  let waiting = null;
  const flush = () => {
    timer = null;
    last = performance.now();
    setStateValue("selection", waiting);
  };
  return {
    send(selection) {
      waiting = selection;
      if (timer !== null) return;
      const wait = QUIET_MS - (performance.now() - last);
      if (wait <= 0) flush();
      else timer = setTimeout(flush, wait);
    },
    use(newSetStateValue) {
      setStateValue = newSetStateValue;
    },
    stop() {
      if (timer !== null) clearTimeout(timer);
    },
  };
}
