// The views of the page, in the order of their tabs: {id, title, draw(place, page)}.

import { attentionView } from "./attention.js";
import { backwardView } from "./backward.js";
import { changeView } from "./change_view.js";
import { lensView } from "./lens.js";
import { mapView } from "./map.js";
import { shareView } from "./share.js";
import { toursView } from "./tours.js";
import { trainingView } from "./training.js";
import { writingView } from "./writing.js";

export const VIEWS = [mapView, attentionView, lensView, changeView, backwardView, trainingView, writingView, toursView, shareView];
